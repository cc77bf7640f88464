"""Choosing plausible sentences: the patterns that make statements and commands out of clauses, and join clauses.

Every pattern is a method of `Writer` that returns a structure; `PATTERNS` says how often each is used.
"""

from dataclasses import replace

from heedful.demo import lexicon
from heedful.demo.clauses import PERSONAL, can_deny, settle, simple_past, verbs_with
from heedful.demo.lexicon import Name
from heedful.demo.phrases import adjective, adjectives, clashes, is_person, pronoun_for, question
from heedful.demo.questions import ACTIVE, TRANSITIVE, Questioner
from heedful.demo.structure import (
    SHE,
    THERE,
    YOU,
    Both,
    Clause,
    Comparison,
    Gap,
    I,
    Linked,
    Nominal,
    NounPhrase,
    Place,
    Pronoun,
    Sentence,
    Tense,
)

LASTING, EVERYDAY = verbs_with("lasting"), verbs_with("lasting", "routine")
SUDDEN = [verb for verb in lexicon.VERBS if verb.prefix + verb.infinitive in ("ankommen", "zurückkommen", "anrufen")]
SUDDEN += [verb for verb in lexicon.VERBS if verb.infinitive == "klingeln" or verb.prefix + verb.er == "aufsteht"]
FAVORS = [verb for verb in PERSONAL if verb.base in ("help", "invite", "call", "visit")]
COSTLY = [verb for verb in PERSONAL if verb.base in ("buy", "travel", "fly", "order")]
PREFERENCES = [verb for verb in verbs_with("like") if verb.objects and verb.base not in ("have", "see")]
HAVE = next(verb for verb in PERSONAL if verb.base == "have")
QUALITIES = [word for word in lexicon.ADJECTIVES if "state" not in word.kinds]

EXISTING = [
    (("building",), ("town",)),
    (("plant",), ("garden", "park")),
    (("wild",), ("forest",)),
    (("farm",), ("village",)),
    (("bird", "duck", "rabbit"), ("park", "garden", "forest")),
    (("tourist", "child", "student"), ("museum", "library", "city", "park")),
    (("guest",), ("hotel", "restaurant")),
]


class Writer(Questioner):
    # Statements of one clause, and commands

    def simple(self) -> Sentence:
        return Sentence(self.clause())

    def weather_report(self) -> Sentence:
        era = self.pick(["past", "now", "future"])
        it = self.weather(era)
        return Sentence(
            replace(it, time=self.time(era, it.subject), time_first=self.chance(0.5)) if self.chance(0.7) else it
        )

    def condition(self) -> Sentence:
        """A person is tired."""
        subject, era = self.person_phrase(), self.pick(["past", "now", "now"])
        it = self.state(subject, era)
        return Sentence(
            replace(it, time=self.time(era, it.subject), time_first=self.chance(0.5)) if self.chance(0.3) else it
        )

    def quality(self) -> Sentence:
        """Something is old, or old but beautiful."""
        word = self.pick(QUALITIES)
        kinds = [kind for kind in word.kinds if kind not in ("colour", "plus", "minus")]
        subject = self.noun_phrase(self.noun(*kinds), "known", quality=0.0)
        tense: Tense = "past" if self.chance(0.2) else "present"
        opposite = "minus" if "plus" in word.kinds else "plus" if "minus" in word.kinds else ""
        others = [other for other in adjectives(subject.noun) if opposite in other.kinds]
        if others and self.chance(0.25):
            return Sentence(Clause(subject, lexicon.BE, tense, predicate=(word, self.pick(others))))
        return Sentence(Clause(subject, lexicon.BE, tense, predicate=word, negated=self.chance(0.15)))

    def comparison(self) -> Sentence:
        word = self.pick([word for word in QUALITIES if word.comparative])
        kind = self.pick([kind for kind in word.kinds if kind not in ("plus", "minus")])
        if kind in ("human", "kin", "man", "woman"):
            subject, standard = self._named(), self._named()
            while not comparable(subject, standard):
                subject, standard = self._named(), self._named()
        else:
            subject = self.noun_phrase(self.noun(kind), "known", quality=0.0)
            standard = self.noun_phrase(subject.noun, "known", quality=0.0)
            while not comparable(subject, standard):
                subject = self.noun_phrase(subject.noun, "known", quality=0.0)
                standard = self.noun_phrase(self.noun(kind), "known", quality=0.0)
        return Sentence(Clause(subject, lexicon.BE, predicate=Comparison(word, self.chance(0.3), standard)))

    def _named(self) -> Name | NounPhrase:
        """Anna, my brother, the teacher"""
        subject = self.person_phrase("known")
        while isinstance(subject, Pronoun | Both | Gap):
            subject = self.person_phrase("known")
        return subject

    def profession(self) -> Sentence:
        subject: Nominal = self.person_phrase()
        while not isinstance(who := pronoun_for(subject), Pronoun) or who.person != "er":
            subject = self.person_phrase()
        if isinstance(subject, NounPhrase) and "kin" not in subject.noun.kinds:
            subject = who
        job = self.noun("job")
        words = (adjective(self.pick(["good", "famous", "young", "friendly"])),) if self.chance(0.3) else ()
        predicate = NounPhrase(job.woman() if who == SHE else job, lexicon.A, False, words)
        tense: Tense = "past" if self.chance(0.2) else "present"
        return Sentence(Clause(subject, lexicon.BE, tense, predicate=predicate, negated=self.chance(0.2)))

    def whereabouts(self) -> Sentence:
        tense: Tense = "past" if self.chance(0.4) else "present"
        person = self.chance(0.5)
        subject = self.person_phrase("known") if person else self.noun_phrase(self.noun("thing"), "known")
        if self.chance(0.25):
            return Sentence(Clause(subject, lexicon.BE, tense, place=question("place")), "question")
        place = self.location("at" if person else "spot", subject)
        return Sentence(Clause(subject, lexicon.BE, tense, negated=self.chance(0.15), place=place))

    def existence(self) -> Sentence:
        kinds, places = self.pick(EXISTING)
        noun = self.noun(*kinds)
        choices = [(lexicon.A, False), (self.pick(lexicon.NUMBERS), True), (lexicon.MANY, True)]
        determiner, plural = self.pick(choices[1:] if "human" in noun.kinds else choices)
        what = NounPhrase(noun, determiner, plural, self.qualities(noun, 0.3))
        there = Place("in", "in", "dat", NounPhrase(self.noun(*places), lexicon.THE))
        tense: Tense = "past" if self.chance(0.25) else "present"
        return Sentence(Clause(THERE, lexicon.THERE_IS, tense, object=what, place=there))

    def price(self) -> Sentence:
        subject = self.noun_phrase(self.noun("gift", "clothing", "food", "ticket"), "pointed")
        if self.chance(0.3):
            return Sentence(Clause(subject, lexicon.COST, manner=question("price")), "question")
        number = self.pick(lexicon.NUMBERS if "food" in subject.noun.kinds else lexicon.TENS)
        euros = NounPhrase(self.noun("euro"), number, plural=True)
        return Sentence(Clause(subject, lexicon.COST, object=euros))

    def command(self) -> Sentence:
        it = self.clause(verbs_with("command"), subject=YOU, era="habit", plain=True)
        return Sentence(replace(it, tense="present", modal=None, negated=self.chance(0.12) and not it.place), "command")

    # Two clauses

    def because(self) -> Sentence:
        """because, although"""
        era = self.pick(["past", "now"])
        main = self.clause(EVERYDAY, era=era, plain=self.chance(0.6))
        return self._joined(
            simple_past(main), self.pick(["because", "because", "although"]), self.circumstance(main, era), 0.15
        )

    def if_(self) -> Sentence:
        means = self.noun("time", "money")
        rich = means.english == "money"
        main = self.clause(
            COSTLY if rich else EVERYDAY + FAVORS, subject=self.person_phrase(), era="future", plain=True
        )
        who = pronoun_for(main.subject)
        choice = self.pick(["circumstance", "weather", "favour", "means"])
        if who and (rich or choice == "means"):
            inner = Clause(who, HAVE, object=NounPhrase(means, lexicon.NO_ARTICLE))
        elif choice == "circumstance":
            inner = self.circumstance(main, "habit")
        elif choice == "favour":
            inner = replace(self.clause(FAVORS, era="habit", plain=True), tense="present", modal=None)
        else:
            inner = self.weather("habit")
        return self._joined(main, "if", inner, 0.5)

    def when(self) -> Sentence:
        main, inner = self.clause(LASTING, era="past", plain=True), self.clause(SUDDEN, era="past", plain=True)
        main = replace(main, tense="past progressive", modal=None, negated=False)
        return self._joined(main, "when", replace(inner, tense="past", modal=None, negated=False), 0.5)

    def while_(self) -> Sentence:
        tense: Tense = self.pick(["past progressive", "progressive"])
        main, inner = (
            replace(self.clause(LASTING, plain=True), tense=tense, modal=None, negated=False) for _ in range(2)
        )
        return self._joined(main, "while", inner, 0.4)

    def before(self) -> Sentence:
        tense: Tense = self.pick(["past", "present"])
        verbs = [verb for verb in EVERYDAY if verb.past != verb.base and verb.base not in ("sleep", "wait", "stay")]
        main = self.clause(verbs, plain=True)
        inner = self.clause(verbs, subject=pronoun_for(main.subject) or self.person_phrase(), plain=True)
        main, inner = (replace(it, tense=tense, modal=None, negated=False) for it in (main, inner))
        return self._joined(main, "before", inner, 0.4)

    def _joined(self, main: Clause, link: str, inner: Clause, first: float) -> Sentence:
        """The linked clause may come first; a pronoun then moves to the later clause."""
        if main.verb == inner.verb or (main.subject == inner.subject and not isinstance(main.subject, Pronoun)):
            return self.because()
        ahead = self.chance(first) and not main.time_first
        if ahead and inner.subject == pronoun_for(main.subject):
            inner, main = replace(inner, subject=main.subject), replace(main, subject=inner.subject)
        return Sentence(settle(main), linked=Linked(link, settle(inner)), linked_first=ahead)

    def report(self) -> Sentence:
        """Say that, ask whether, know where: told, denied or asked."""
        trait = self.pick(["that", "that", "whether", "where"])
        verbs = [verb for verb in lexicon.CLAUSE_VERBS.values() if trait in verb.traits]
        verb = self.pick(verbs)
        past = self.chance(0.3) and verb.base != "hope"
        is_question = self.chance(0.25) and verb.base != "hope"
        unknown = trait != "that" and verb.base == "know" and not is_question
        denied = trait == "that" and verb.base in ("believe", "think", "know", "say") and self.chance(0.25)
        era = "past" if past else "future" if verb.base == "hope" else ""
        if trait == "where":
            inner = self.asked_adverb(era)
            complement = Linked("", simple_past(inner) if past else inner)
        else:
            inner = self.clause(ACTIVE if past else PERSONAL, era=era, plain=self.chance(0.7))
            inner = simple_past(inner) if past else inner
            inner = replace(inner, modal=None, tense="future") if verb.base == "hope" else inner
            complement = Linked(trait, replace(inner, time_first=False, negated=inner.negated and trait == "that"))
        subject, other = self.person_phrase(), complement.clause.subject
        while not can_deny(subject) or (clashes(subject, other) and not isinstance(subject, Pronoun)):
            subject = self.person_phrase()
        it = Clause(subject, verb, "past" if past else "present", negated=unknown or denied, complement=complement)
        if is_question and subject != I:
            why = denied or self.chance(0.5)
            return Sentence(replace(it, reason=question("reason") if why else None), "question")
        return Sentence(it)

    def intention(self) -> Sentence:
        """Try to, decide to: an infinitive with zu."""
        verb = self.pick([verb for verb in lexicon.CLAUSE_VERBS.values() if "to" in verb.traits])
        verbs = [inner for inner in verbs_with("command") if inner.objects or verb.base != "forget"]
        subject = self.person_phrase()
        inner = self.clause(verbs, subject=subject, plain=True)
        while not (inner.object or inner.place or inner.verb.reflexive):
            inner = self.clause(verbs, subject=subject, plain=True)
        inner = replace(inner, negated=False, modal=None, tense="present")
        tense: Tense = "past" if self.chance(0.6) else "present"
        return Sentence(Clause(subject, verb, tense, complement=Linked("to", inner)))

    def contrast(self) -> Sentence:
        """Two people, one verb, two things."""
        left = self.clause(PREFERENCES, plain=True)
        right = self.clause([left.verb], plain=True)
        while (
            not (left.object and right.object)
            or (isinstance(right.subject, Pronoun) and not isinstance(left.subject, Pronoun))
            or left.subject == right.subject
            or clashes(left.subject, right.subject)
            or clashes(left.object, right.object)
        ):
            left = self.clause(PREFERENCES, plain=True)
            right = self.clause([left.verb], plain=True)
        right = replace(right, tense=left.tense, modal=left.modal, negated=False)
        return Sentence(settle(replace(left, negated=False)), second=(self.pick(["and", "and", "but"]), settle(right)))

    # Relative clauses

    def described(self) -> Sentence:
        """A subject or object with a relative clause."""
        it = self.clause(plain=True)
        slots = ["subject"] if it.place or it.verb.german_preposition else ["subject", "object"]
        nouns = [slot for slot in slots if isinstance(getattr(it, slot), NounPhrase)]
        if not nouns:
            return self.described()
        slot = self.pick(nouns)
        noun = getattr(it, slot).noun
        plural = "several" in noun.kinds or ("mass" not in noun.kinds and self.chance(0.25))
        head = NounPhrase(noun, lexicon.THE, plural)
        relative = None if {"kin", "related"} & set(noun.kinds) else self._relative(head)
        if relative is None or relative.verb == it.verb or clashes(it.subject, relative.subject):
            return self.described()
        if it.place and relative.place and not is_person(head):
            return self.described()
        changed = replace(head, relative=relative)
        return Sentence(settle(replace(it, subject=changed) if slot == "subject" else replace(it, object=changed)))

    def _relative(self, head: NounPhrase) -> Clause | None:
        """A clause about the noun, in which it is the subject or the object."""
        kinds = {*head.noun.kinds, *(["person"] if is_person(head) else [])}
        era = self.pick(["past", "now"])
        if self.chance(0.5):
            verbs = [verb for verb in lexicon.VERBS if kinds & set(verb.subjects)]
            return replace(self.clause(verbs, subject=head, era=era, plain=True), subject=Gap(head)) if verbs else None
        verbs = [verb for verb in TRANSITIVE if kinds & set(verb.objects)]
        if not verbs:
            return None
        it = self.clause([self.pick(verbs)], subject=self.person_phrase("known"), era=era, plain=True)
        return settle(replace(it, object=Gap(head), negated=False))


def comparable(left: Nominal, right: Nominal) -> bool:
    """Not the milk and the milk, nor the milk and my milk, nor these films and the film."""
    if not isinstance(left, NounPhrase) or not isinstance(right, NounPhrase):
        return left != right
    if left.noun != right.noun:
        return left.plural == right.plural
    determiners = {left.determiner, right.determiner}
    pointing = determiners == {lexicon.THE, lexicon.THIS} and not (left.owner or right.owner)
    owned = lexicon.THE not in determiners or bool(left.owner and right.owner)
    differ = (left.determiner, left.owner) != (right.determiner, right.owner)
    return left.plural == right.plural and differ and (pointing or owned)


PATTERNS = {
    Writer.simple: 46,
    Writer.weather_report: 1,
    Writer.condition: 4,
    Writer.quality: 6,
    Writer.comparison: 3,
    Writer.profession: 2,
    Writer.whereabouts: 3,
    Writer.existence: 2,
    Writer.price: 3,
    Writer.command: 4,
    Writer.yes_no: 5,
    Writer.who_question: 2,
    Writer.object_question: 4,
    Writer.adverb_question: 4,
    Writer.degree_question: 1,
    Writer.because: 5,
    Writer.if_: 3,
    Writer.when: 2,
    Writer.while_: 2,
    Writer.before: 2,
    Writer.report: 8,
    Writer.intention: 3,
    Writer.contrast: 3,
    Writer.described: 6,
}


def write_sentence(writer: Writer) -> Sentence:
    pattern = writer.rng.choices(list(PATTERNS), list(PATTERNS.values()))[0]
    return pattern(writer)
