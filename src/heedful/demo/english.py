"""A structure said in English: tokens with roles. Mirrors `german`, which says the same structure in German."""

from typing import Literal

from heedful.demo.lexicon import Adjective, Name, Phrase, Verb, english_ing
from heedful.demo.structure import (
    THERE,
    Both,
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

Order = Literal["statement", "question"]
END = {"statement": ".", "question": "?", "command": "!"}


def sentence(it: Sentence) -> list[Token]:
    order: Order = "question" if it.mood == "question" else "statement"
    tokens = command(it.clause) if it.mood == "command" else clause(it.clause, "", order)
    if it.linked:
        linked = link(it.linked, "linked.")
        tokens = [*linked, token(",", "comma"), *tokens] if it.linked_first else [*tokens, *linked]
    if it.second:
        word, second = it.second
        comma = [token(",", "comma")] if word == "but" else []
        tokens = [*tokens, *comma, token(word, "second"), *clause(second, "second.", "statement")]
    return [*tokens, token(END[it.mood], "end")]


def link(linked: Linked, at: str) -> list[Token]:
    words = [token(word, at + "link") for word in linked.link.split()]
    if linked.link == "to":
        return [*words, *predicate_part(linked.clause, at, [token(linked.clause.verb.base, at + "verb")])]
    return [*words, *clause(linked.clause, at, "statement")]


def command(it: Clause) -> list[Token]:
    verb = token(it.verb.base, "finite", "verb")
    start = [token("do", "finite"), token("not", "not"), token(it.verb.base, "verb")] if it.negated else [verb]
    return predicate_part(it, "", start)


def clause(it: Clause, at: str, order: Order) -> list[Token]:
    first = front(it)
    lead = [] if first == "subject" else slot(it, first, at)
    subject = nominal(it.subject, at + "subject", True)
    turned = order == "question" and not is_question(it.subject)
    finite, tail = verb_group(it, at, turned)
    often = phrase(it.frequency, at + "frequency") if it.frequency else []
    negation = [token("not", at + "not")] if it.negated and finite.text != "cannot" else []
    if turned:
        return [*lead, finite, *subject, *negation, *often, *predicate_part(it, at, tail)]
    if not tail and it.verb.base != "be":
        return [*lead, *subject, *often, *predicate_part(it, at, [finite])]
    return [*lead, *subject, finite, *negation, *often, *predicate_part(it, at, tail)]


def verb_group(it: Clause, at: str, turned: bool) -> tuple[Token, list[Token]]:  # noqa: PLR0911
    """The finite verb and the verbs after it; `do` helps a full verb in questions and negations."""
    who = person(it.object) if it.subject == THERE and it.object else person(it.subject)
    third, helped = who == "er", turned or it.negated
    finite, verb = at + "finite", at + "verb"

    def helped_by(do: str, words: str, role: str) -> tuple[Token, list[Token]]:
        return token(do, finite), [token(word, role) for word in words.split()]

    do = "does" if third else "do"
    if it.gladly:
        role, base = at + "gladly", token(it.verb.base, verb)
        if helped:
            head, tail = helped_by(do, "like to", role)
            return head, [*tail, base]
        return token("likes" if third else "like", role), [token("to", role), token(it.verb.base, finite, verb)]
    if it.modal:
        head, tail = _modal(it, who, helped, finite, at)
        return head, [*tail, token(it.verb.base, verb)]
    match it.tense:
        case "future":
            return token("will", finite), [token(it.verb.base, verb)]
        case "perfect":
            return token("has" if third else "have", finite), [token(it.verb.participle, verb)]
        case "progressive" | "past progressive" as tense:
            return token(be(who, past=tense != "progressive"), finite), [token(english_ing(it.verb.base), verb)]
        case tense if it.verb.base == "be":
            return token(be(who, past=tense == "past"), finite, verb), []
        case "past":
            return helped_by("did", it.verb.base, verb) if helped else (token(it.verb.past, finite, verb), [])
        case _:
            form = third_person(it.verb) if third else it.verb.base
            return helped_by(do, it.verb.base, verb) if helped else (token(form, finite, verb), [])


def _modal(it: Clause, who: str, helped: bool, finite: str, at: str) -> tuple[Token, list[Token]]:
    assert it.modal
    first, *rest = it.modal.english.split()
    base = {"wants": "want", "wanted": "want", "has": "have", "had": "have"}.get(first, first)
    if it.modal.style == "be":
        first = be(who, past=False)
    elif it.modal.style in ("do", "did") and helped:
        first, rest = {"did": "did", "do": "does" if who == "er" else "do"}[it.modal.style], [base, *rest]
    elif it.modal.style == "do" and who != "er":
        first = base
    elif first == "can" and it.negated:
        return token("cannot", finite, at + "not"), []
    return token(first, finite), [token(word, finite) for word in rest]


def be(who: str, past: bool) -> str:
    if past:
        return "was" if who in ("ich", "er") else "were"
    return {"ich": "am", "er": "is"}.get(who, "are")


def third_person(verb: Verb) -> str:
    base = verb.base
    if base == "have":
        return "has"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "z", "o")) else "s")


def predicate_part(it: Clause, at: str, verbs: list[Token]) -> list[Token]:
    """The verbs and everything behind them, without the slot that stands in front."""
    moved = front(it)
    rest = [token(word, at + "verb") for word in it.verb.rest.split()]
    preposition = [token(it.verb.preposition, at + "preposition")] if it.verb.preposition and it.object else []
    particle = [token(it.verb.particle, at + "verb")] if it.verb.particle else []
    recipient = [] if moved == "recipient" else slot(it, "recipient", at)
    direct = [] if moved == "object" else slot(it, "object", at)
    if "gives-to" in it.verb.traits:
        to = [token("to", at + "to")] if it.recipient else []
        objects = [*direct, *to, *recipient]
    elif isinstance(it.object, Pronoun):
        objects = [*recipient, *direct, *particle]
    else:
        objects = [*particle, *recipient, *direct]
    later = [t for name in ("predicate", "manner", "place", "time") if name != moved for t in slot(it, name, at)]
    complement = link(it.complement, at + "complement.") if it.complement else []
    return [*verbs, *rest, *preposition, *objects, *later, *complement]


def slot(it: Clause, name: str, at: str) -> list[Token]:
    part = getattr(it, name)
    match part:
        case None:
            return []
        case Phrase():
            return phrase(part, at + name)
        case Place():
            words = [token(word, f"{at}{name}.preposition") for word in part.english.split()]
            return [*words, *nominal(part.inner, at + name, False)]
        case _ if name == "predicate":
            return predicate(part, at + name)
        case _:
            return nominal(part, at + name, False)


def phrase(it: Phrase, at: str) -> list[Token]:
    return [token(word, f"{at}.{i}") for i, unit in enumerate(it.english) for word in unit]


def nominal(it: Nominal, at: str, is_subject: bool) -> list[Token]:
    match it:
        case Pronoun():
            return [token(it.english if is_subject else it.english_object, at + ".noun")]
        case Name():
            return [token(it.english, at + ".noun")]
        case Both():
            return [
                token(it.left.english, at + ".left"),
                token("and", at + ".and"),
                token(it.right.english, at + ".right"),
            ]
        case Gap():
            people = {"human", "kin"} & set(it.head.noun.kinds)
            return [token("who" if people and is_subject else "that", at + ".noun")]
        case NounPhrase():
            return noun_phrase(it, at)


def noun_phrase(it: NounPhrase, at: str) -> list[Token]:
    adjectives = [token(word.english, f"{at}.adjective{i}") for i, word in enumerate(it.adjectives)]
    noun = token(it.noun.english_plural if it.plural else it.noun.english, at + ".noun")
    relative = clause(it.relative, at + ".relative.", "statement") if it.relative else []
    if it.owner:
        *owner, last = nominal(it.owner, at + ".owner", True)
        determiner = [*owner, Token(last.text + "'s", last.roles)]
    else:
        words = it.determiner.english_plural if it.plural else it.determiner.english
        determiner = [token(word, f"{at}.determiner{i}") for i, word in enumerate(words.split())]
    if [word.text for word in determiner] == ["a"] and takes_an([*adjectives, noun][0].text):
        determiner = [Token("an", determiner[0].roles)]
    return [*determiner, *adjectives, noun, *relative]


def takes_an(word: str) -> bool:
    return word[0] in "aeiou" and not word.startswith("eu")


def predicate(it: Predicate, at: str) -> list[Token]:
    match it:
        case Adjective():
            return [token(it.english, at + ".adjective")]
        case Degree():
            return [token("how", at + ".degree"), token(it.adjective.english, at + ".adjective")]
        case Comparison():
            standard = nominal(it.standard, at + ".standard", True)
            if it.equal:
                same = token("as", at + ".degree"), token(it.adjective.english, at + ".adjective")
                return [*same, token("as", at + ".than"), *standard]
            return [*comparative(it.adjective, at), token("than", at + ".than"), *standard]
        case NounPhrase():
            return noun_phrase(it, at)
        case (left, right):
            words = (left.english, ".adjective"), ("but", ".but"), (right.english, ".second")
            return [token(word, at + role) for word, role in words]


def comparative(it: Adjective, at: str) -> list[Token]:
    word = it.english
    if word == "good":
        form = "better"
    elif word.endswith("y"):
        form = word[:-1] + "ier"
    elif word in ("clever", "quiet") or sum(letter in "aeiou" for letter in word.removesuffix("e")) == 1:
        form = word + ("r" if word.endswith("e") else word[-1] + "er" if word in ("big", "hot", "sad") else "er")
    elif word in ("clean", "cheap", "sweet", "poor"):
        form = word + "er"
    else:
        return [token("more", at + ".adjective"), token(word, at + ".adjective")]
    return [token(form, at + ".adjective")]
