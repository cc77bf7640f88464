"""A structure said in German: tokens with roles, laid out in topological fields.

A main clause is front field | finite verb | middle field | verbal bracket | after-field. A subordinate clause moves the
finite verb behind the bracket; a question or command leaves the front field empty or gives it to the question word.
"""

from typing import Literal

from heedful.demo import morphology
from heedful.demo.lexicon import CONJUNCTIONS, NO_ARTICLE, THE, A, Adjective, Determiner, Name, Phrase
from heedful.demo.structure import (
    THERE,
    Both,
    Case,
    Clause,
    Comparison,
    Degree,
    Gap,
    Linked,
    Nominal,
    NounPhrase,
    Place,
    Predicate,
    Pronoun,
    Sentence,
    Token,
    front,
    is_question,
    person,
    token,
)

Order = Literal["second", "first", "last"]  # where the finite verb stands
END = {"statement": ".", "question": "?", "command": "!"}
KEIN = Determiner("", "", "kein", "ein", False)


def sentence(it: Sentence) -> list[Token]:
    comma = token(",", "comma")
    asks = it.mood == "question" and is_question(getattr(it.clause, front(it.clause)))
    order: Order = "second" if it.mood == "statement" or asks else "first"
    if it.linked and it.linked_first:
        tokens = [*link(it.linked, "linked."), comma, *clause(it.clause, "", "first")]
    else:
        tokens = clause(it.clause, "", order, command=it.mood == "command")
        tokens += [comma, *link(it.linked, "linked.")] if it.linked else []
    if it.second:
        word, second = it.second
        tokens += [comma] if word == "but" else []
        tokens += [token(CONJUNCTIONS[word], "second"), *clause(second, "second.", "second")]
    return tidy([*tokens, token(END[it.mood], "end")])


def tidy(tokens: list[Token]) -> list[Token]:
    """A comma that closes a clause is dropped before any other mark."""
    following = [t.text for t in tokens[1:]] + [""]
    return [t for t, after in zip(tokens, following, strict=True) if t.text != "," or after not in ",.?!"]


def link(linked: Linked, at: str) -> list[Token]:
    if linked.link == "to":
        middle = middle_field(linked.clause, at)
        return [t for name, part in middle if name != "subject" for t in part] + infinitive(linked.clause, at)
    words = [token(CONJUNCTIONS[linked.link], at + "link")] if linked.link else []
    return [*words, *clause(linked.clause, at, "last")]


def infinitive(it: Clause, at: str) -> list[Token]:
    """Two words, `zu öffnen`, or one with a prefix: `aufzumachen`."""
    verb = it.verb
    if verb.prefix:
        return [token(verb.prefix + "zu" + verb.infinitive, at + "link", at + "verb")]
    return [token("zu", at + "link"), token(verb.infinitive, at + "verb")]


def clause(it: Clause, at: str, order: Order, command: bool = False) -> list[Token]:
    finite, bracket = verbs(it, at, order, command)
    middle = middle_field(it, at)
    first = "place" if it.subject == THERE and order == "second" else front(it)
    lead = [t for name, part in middle if name == first for t in part]
    rest = [t for name, part in middle if name != first for t in part]
    if command:
        rest = [t for name, part in middle if name != "subject" for t in part]
    after = after_field(it, at)
    match order:
        case "second":
            return [*lead, finite, *rest, *bracket, *after]
        case "first":
            whole = rest if command else [t for _, part in middle for t in part]
            return [finite, *whole, *bracket, *after]
        case "last":
            return [*lead, *rest, *bracket, finite, *after]


def verbs(it: Clause, at: str, order: Order, command: bool) -> tuple[Token, list[Token]]:
    """The finite verb and the verbal bracket: infinitive, participle or separated prefix."""
    verb, who = it.verb, person(it.subject)
    whole = token(verb.prefix + verb.infinitive, at + "verb")
    helper = at + "finite"
    if it.modal:
        return token(morphology.conjugate(it.modal.german, who), helper), [whole]
    if it.tense == "future":
        return token(morphology.conjugate(morphology.IRREGULAR["werden"], who), helper), [whole]
    preterite = it.tense == "past" and "preterite" in verb.traits
    if it.tense in ("past", "past progressive", "perfect") and not preterite:
        participle = token(verb.prefix + verb.german_participle, at + "verb")
        auxiliary = morphology.IRREGULAR["sein" if verb.sein else "haben"]
        return token(morphology.conjugate(auxiliary, who), helper), [participle]
    forms = morphology.PRETERITE[verb.infinitive] if preterite else morphology.present(verb)
    form = morphology.imperative(verb) if command else morphology.conjugate(forms, who)
    if order == "last":
        return token(verb.prefix + form, helper, at + "verb"), []
    return token(form, helper, at + "verb"), [token(verb.prefix, at + "verb")] if verb.prefix else []


def middle_field(it: Clause, at: str) -> list[tuple[str, list[Token]]]:
    """All parts in the order of the middle field, each with its slot; the caller takes out the one in front."""
    part = {name: slot(it, name, at) for name in ("subject", "recipient", "object", "predicate", "time", "manner")}
    part |= {name: slot(it, name, at) for name in ("place", "reason", "frequency")}
    part["reflexive"] = [token(morphology.REFLEXIVE[person(it.subject)], at + "verb")] if it.verb.reflexive else []
    part["gladly"] = [token("gern", at + "gladly")] if it.gladly else []
    part["not"] = [token("nicht", at + "not")] if it.negated and not absorbs(it) else []
    return [(name, part[name]) for name in field_order(it) if part[name]]


def field_order(it: Clause) -> list[str]:
    """Pronouns, then what is known, then what is new; `nicht` stands between the two.

    A time comes before what is known, unless that is a person's name or the clause is denied.
    """
    governed = bool(it.verb.german_preposition)
    light = ["object"] if isinstance(it.object, Pronoun) and not governed else []
    light += ["recipient"] if isinstance(it.recipient, Pronoun) else []
    dative = "recipient" in light or ("object" in light and it.verb.case == "dat")
    early = (dative or it.verb.reflexive) and not isinstance(it.subject, Pronoun | Gap)
    start = ["reflexive", *light, "subject"] if early else ["subject", "reflexive", *light]

    objects = [name for name in ("recipient", "object") if name not in light and not (governed and name == "object")]
    known = [name for name in objects if is_known(getattr(it, name))]
    late = it.negated or (it.frequency is not None and "like-not" in it.frequency.kinds)
    named = known if late else [name for name in known if isinstance(getattr(it, name), Name)]
    known = [name for name in known if name not in named]

    new = ["object"] if "object" not in [*light, *named, *known] else []
    rest = ["place", "manner", *new] if new and it.object and not governed else [*new, "manner", "place"]
    return [*start, "reason", *named, "time", "frequency", *known, "not", "gladly", *rest, "predicate"]


def is_known(it: Nominal | None) -> bool:
    match it:
        case NounPhrase():
            return it.determiner.definite or it.owner is not None
        case _:
            return True


def absorbs(it: Clause) -> bool:
    """`not` melts with an indefinite noun phrase into `kein`."""
    return any(melts(part) for part in (it.object, it.predicate)) and not it.verb.german_preposition and not it.gladly


def melts(part: object) -> bool:
    return isinstance(part, NounPhrase) and part.determiner in (A, NO_ARTICLE)


def after_field(it: Clause, at: str) -> list[Token]:
    relative = relative_clause(it.object, at + "object") if isinstance(it.object, NounPhrase) else []
    if not it.complement:
        return relative
    return [*relative, token(","), *link(it.complement, at + "complement.")]


def slot(it: Clause, name: str, at: str) -> list[Token]:  # noqa: PLR0911
    part = getattr(it, name)
    at += name
    match name, part:
        case _, None:
            return []
        case _, Phrase():
            return phrase(part, at)
        case _, Place():
            return prepositional(part.german, part.case, part.inner, at, at + ".preposition")
        case "predicate", _:
            return predicate(part, at, it.negated)
        case "subject", NounPhrase():
            relative = relative_clause(part, at)
            return [*noun_phrase(part, "nom", at), *relative, *([token(",")] if relative else [])]
        case "subject", _:
            return nominal(part, "nom", at)
        case "recipient", _:
            return nominal(part, "dat", at)
    case_: Case = "dat" if it.verb.case == "dat" else "acc"
    if it.verb.german_preposition:
        return prepositional(it.verb.german_preposition, case_, part, at, at.removesuffix("object") + "preposition")
    if it.negated and absorbs(it):
        return noun_phrase(part, case_, at, negative=at.removesuffix("object") + "not")
    return nominal(part, case_, at)


def prepositional(preposition: str, case: Case, inner: Nominal, at: str, role: str) -> list[Token]:
    head, (first, *rest) = token(preposition, role), nominal(inner, case, at)
    definite = isinstance(inner, NounPhrase) and (inner.determiner == THE or inner.owner)
    contracted = morphology.CONTRACTIONS.get((preposition, first.text)) if definite else None
    if contracted:
        return [Token(contracted, (*head.roles, *first.roles)), *rest]
    return [head, first, *rest]


def phrase(it: Phrase, at: str) -> list[Token]:
    return [token(word, f"{at}.{i}") for i, unit in enumerate(it.german) for word in unit]


def nominal(it: Nominal, case: Case, at: str) -> list[Token]:
    match it:
        case Pronoun():
            return [token({"nom": it.nom, "acc": it.acc, "dat": it.dat}[case], at + ".noun")]
        case Name():
            return [token(it.german + ("s" if case == "gen" else ""), at + ".noun")]
        case Both():
            return [
                token(it.left.german, at + ".left"),
                token("und", at + ".and"),
                token(it.right.german, at + ".right"),
            ]
        case Gap():
            gender = "p" if it.head.plural else it.head.noun.gender
            return [token(morphology.RELATIVE[case, gender], at + ".noun")]
        case NounPhrase():
            return noun_phrase(it, case, at)


def noun_phrase(it: NounPhrase, case: Case, at: str, negative: str = "") -> list[Token]:
    """Determiner, adjectives, noun, owner; `negative` is the role of the `not` that a `kein` takes in."""
    gender = "p" if it.plural else it.noun.gender
    word = KEIN if negative else THE if isinstance(it.owner, NounPhrase) else it.determiner
    start = determiner(word, case, gender, at, [negative] if negative else [])
    if isinstance(it.owner, NounPhrase):
        start = [Token(start[0].text)]  # the owner has its own article
    elif it.owner:
        start = nominal(it.owner, "gen", at + ".owner")
    pattern = "strong" if isinstance(it.owner, Name) else word.pattern
    adjectives = [
        token(morphology.adjective(adjective, pattern, case, gender), f"{at}.adjective{i}")
        for i, adjective in enumerate(it.adjectives)
    ]
    noun = token(morphology.noun(it.noun, case, it.plural), at + ".noun")
    owner = noun_phrase(it.owner, "gen", at + ".owner") if isinstance(it.owner, NounPhrase) else []
    return [*start, *adjectives, noun, *owner]


def determiner(word: Determiner, case: Case, gender: str, at: str, extra: list[str]) -> list[Token]:
    """One German word takes the roles of all English ones: all the, alle; two go in step: how many, wie viele."""
    texts = morphology.determiner(word, case, gender).split()
    if len(texts) == 1:
        return [token(texts[0], at + ".determiner0", at + ".determiner1", *extra)]
    return [token(text, f"{at}.determiner{i}") for i, text in enumerate(texts)]


def relative_clause(it: NounPhrase, at: str) -> list[Token]:
    return [token(","), *clause(it.relative, at + ".relative.", "last")] if it.relative else []


def predicate(it: Predicate, at: str, negated: bool) -> list[Token]:
    match it:
        case Adjective():
            return [token(it.german, at + ".adjective")]
        case Degree():
            return [token("wie", at + ".degree"), token(it.adjective.german, at + ".adjective")]
        case Comparison():
            standard = nominal(it.standard, "nom", at + ".standard")
            if it.equal:
                same = token("so", at + ".degree"), token(it.adjective.german, at + ".adjective")
                return [*same, token("wie", at + ".than"), *standard]
            return [token(it.adjective.comparative, at + ".adjective"), token("als", at + ".than"), *standard]
        case NounPhrase():
            tokens = noun_phrase(it, "nom", at, at.removesuffix("predicate") + "not" if negated else "")
            return tokens if negated or it.adjectives else tokens[1:]  # er ist Lehrer, but kein Lehrer
        case (left, right):
            words = (left.german, ".adjective"), (",", ".comma"), ("aber", ".but"), (right.german, ".second")
            return [token(word, at + role) for word, role in words]
