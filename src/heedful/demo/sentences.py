"""Choosing plausible sentences: clauses around a verb, and the patterns that join clauses.

Every pattern is a method of `Writer` that returns a structure; `PATTERNS` says how often each is used.
"""

from dataclasses import replace

from heedful.demo import lexicon
from heedful.demo.lexicon import Modal, Verb
from heedful.demo.phrases import Author, phrases, pronoun_for, question
from heedful.demo.structure import (
    IT,
    SHE,
    THERE,
    WHAT,
    WHO,
    YOU,
    Both,
    Clause,
    Comparison,
    Degree,
    Gap,
    Linked,
    Name,
    Nominal,
    NounPhrase,
    Place,
    Pronoun,
    Sentence,
    Tense,
)

PAST_MODALS = [modal for modal in lexicon.MODALS if modal.english in ("could", "wanted to", "had to")]
PRESENT_MODALS = [modal for modal in lexicon.MODALS if modal not in PAST_MODALS]
LASTING = [
    verb
    for verb in lexicon.VERBS
    if verb.base
    in "sleep work dance play sing cook read write wash clean tidy repair eat drink bake wait paint".split()
]
SUDDEN = [
    verb for verb in lexicon.VERBS if verb.infinitive in "kommen aufwachen rufen klingeln fangen stehen machen".split()
]
SUDDEN = [verb for verb in SUDDEN if verb.prefix or verb.base == "ring"]
PERSONAL = [verb for verb in lexicon.VERBS if "person" in verb.subjects]
TRANSITIVE = [verb for verb in lexicon.VERBS if verb.objects and "optional" not in verb.traits]
STATES = [word for word in lexicon.ADJECTIVES if "state" in word.kinds]
MANNERS = {entry.english[0][0]: entry for entry in phrases("manner")}


class Writer(Author):
    # Clauses

    def clause(
        self,
        verbs: list[Verb] | None = None,
        *,
        subject: Nominal | None = None,
        era: str | None = None,
        plain: bool = False,
    ) -> Clause:
        """A clause around a random verb. `era` is past, now, habit or future; a `plain` one has no adverbials."""
        verb = self.pick(verbs or lexicon.VERBS)
        while subject and not isinstance(subject, NounPhrase) and "person" not in verb.subjects:
            verb = self.pick(verbs or lexicon.VERBS)
        who = subject or self.nominal(verb.subjects, "subject")
        era = self.era(verb, era)
        tense, modal = self.tense(verb, era)
        it = Clause(who, verb, tense, modal, negated=self.chance(0.04 if plain else 0.13) and can_deny(who))
        it = self.with_objects(it)
        it = self.with_place(it, plain)
        if not plain:
            it = self.with_adverbs(it, era)
        return settle(it)

    def era(self, verb: Verb, era: str | None) -> str:
        if "present" in verb.traits:
            return "habit"
        if era:
            return era
        if "static" in verb.traits:
            return self.weighted(past=35, habit=50, future=15)
        return self.weighted(past=36, now=24, habit=24, future=16)

    def tense(self, verb: Verb, era: str) -> tuple[Tense, Modal | None]:
        static = "static" in verb.traits
        if "person" in verb.subjects and not static and self.chance(0.2):
            return "present", self.pick(PAST_MODALS if era == "past" else PRESENT_MODALS)
        match era:
            case "past":
                return "perfect" if not static and self.chance(0.2) else "past", None
            case "now":
                return "present" if static else "progressive", None
            case "future":
                return "future", None
            case _:
                return "present", None

    def with_objects(self, it: Clause) -> Clause:
        verb = it.verb
        if not verb.objects or ("optional" in verb.traits and self.chance(0.5)):
            return it
        use = "negated" if it.negated else "object"
        if verb.german_preposition or verb.case == "dat":
            use = "known"
        it = replace(it, object=self.nominal(verb.objects, use, avoid=it.subject))
        gives = {"gives": 0.85, "gives-to": 0.6, "gives?": 0.15}
        likely = next((gives[trait] for trait in verb.traits if trait in gives), 0.0)
        if not self.chance(likely):
            return it
        recipient = self.nominal(["person"], "known", avoid=it.subject)
        while isinstance(recipient, Both):
            recipient = self.nominal(["person"], "known", avoid=it.subject)
        return replace(it, recipient=recipient)

    def with_place(self, it: Clause, plain: bool) -> Clause:
        for trait in it.verb.traits:
            required = trait.endswith("!")
            name = trait.removesuffix("!")
            if name.endswith("to") and name != "gives-to":
                return replace(it, place=self.goal(name))
            allowed = not plain and not (it.object and it.negated)
            if name in ("at", "shore", "stop", "seat", "wall", "spot", "home") and (
                required or allowed and self.chance(0.3)
            ):
                return replace(it, place=self.location(name))
        return it

    def with_adverbs(self, it: Clause, era: str) -> Clause:
        manners = [trait for trait in it.verb.traits if trait in MANNERS or trait == "with"]
        known = it.object is None or (isinstance(it.object, NounPhrase) and it.object.determiner.definite)
        if manners and known and self.chance(0.2):
            name = self.pick(manners)
            it = replace(it, manner=MANNERS[name] if name != "with" else self.company(it.subject))
        static = "static" in it.verb.traits
        if it.tense == "perfect":
            if it.negated:
                return replace(it, time=phrases("yet")[0]) if known and self.chance(0.5) else it
            return replace(it, frequency=phrases("like-not")[1]) if self.chance(0.4) else it
        if era == "habit" and it.tense == "present" and not it.modal:
            return self.with_habit(it, static)
        if it.modal and era != "past":
            era = "future"
        if self.chance(0.4):
            it = replace(it, time=self.time(era), time_first=self.chance(0.4))
        return it

    def with_habit(self, it: Clause, static: bool) -> Clause:
        if "event" in it.verb.subjects:
            return replace(it, time=self.clock())
        if static:
            return it
        generic = isinstance(it.object, NounPhrase) and it.object.determiner in (lexicon.NO_ARTICLE,)
        glad = "person" in it.verb.subjects and "command" in it.verb.traits and (it.object is None or generic)
        if glad and not it.verb.reflexive and self.chance(0.3):
            return replace(it, gladly=True)
        choice = self.weighted(time=30, frequency=35, nothing=35)
        if choice == "time":
            return replace(it, time=self.time("habit"), time_first=self.chance(0.4))
        if choice == "frequency" and not it.negated:
            return replace(it, frequency=self.pick(phrases("frequency")))
        return it

    def company(self, subject: Nominal) -> Place:
        return Place("with", "mit", "dat", self.nominal(["person"], "known", avoid=subject))

    def state(self, subject: Nominal, era: str) -> Clause:
        tense: Tense = "past" if era == "past" else "present"
        return Clause(subject, lexicon.BE, tense, predicate=self.pick(STATES), negated=self.chance(0.15))

    def weather(self, era: str) -> Clause:
        verb = self.pick([lexicon.RAIN, lexicon.SNOW])
        tense: Tense = {"past": "past", "now": "progressive", "future": "future"}.get(era, "present")  # type: ignore[assignment]
        if era != "future" and self.chance(0.4):
            words = [word for word in lexicon.ADJECTIVES if word.english in ("cold", "warm", "hot", "dark")]
            return Clause(IT, lexicon.BE, "past" if era == "past" else "present", predicate=self.pick(words))
        return Clause(IT, verb, tense)

    # Sentences of one clause

    def simple(self) -> Sentence:
        return Sentence(self.clause())

    def weather_report(self) -> Sentence:
        era = self.weighted(past=1, now=1, future=1)
        it = self.weather(era)
        return Sentence(replace(it, time=self.time(era), time_first=self.chance(0.5)) if self.chance(0.7) else it)

    def quality(self) -> Sentence:
        """Somebody is tired, something is old."""
        if self.chance(0.45):
            it = self.state(self.somebody(), self.weighted(past=1, now=2))
            era = "past" if it.tense == "past" else "now"
            if not can_deny(it.subject):
                it = replace(it, negated=False)
            if self.chance(0.3):
                it = replace(it, time=self.time(era), time_first=self.chance(0.5))
            return Sentence(it)
        adjective = self.pick([word for word in lexicon.ADJECTIVES if "state" not in word.kinds])
        kinds = [kind for kind in adjective.kinds if kind != "colour"]
        subject = self.noun_phrase(self.noun(kinds), "known", adjective=0.0)
        fitting = [word for word in lexicon.ADJECTIVES if not set(word.kinds).isdisjoint(subject.noun.kinds)]
        other = self.pick(fitting)
        tense: Tense = "past" if self.chance(0.2) else "present"
        negated = self.chance(0.15)
        if other != adjective and not negated and {"colour", "state"}.isdisjoint(other.kinds) and self.chance(0.0):
            return Sentence(Clause(subject, lexicon.BE, tense, predicate=(adjective, other)))
        return Sentence(Clause(subject, lexicon.BE, tense, predicate=adjective, negated=negated))

    def comparison(self) -> Sentence:
        adjective = self.pick([word for word in lexicon.ADJECTIVES if word.comparative and "state" not in word.kinds])
        kind = self.pick(adjective.kinds)
        if kind in ("human", "kin", "man", "woman"):
            subject = self.somebody()
            while isinstance(subject, Pronoun | Both) or (
                isinstance(subject, NounPhrase) and not subject.determiner.definite
            ):
                subject = self.somebody()
            standard = subject
            while standard == subject or isinstance(standard, Pronoun | Both) or not same_manner(subject, standard):
                standard = self.somebody("known")
        else:
            subject = self.noun_phrase(self.noun([kind]), "known", adjective=0.0)
            standard = self.noun_phrase(self.noun([kind]), "known", adjective=0.0)
            while standard == subject or (standard.determiner, standard.owner) == (subject.determiner, subject.owner):
                standard = self.noun_phrase(subject.noun, "known", adjective=0.0)
        return Sentence(Clause(subject, lexicon.BE, predicate=Comparison(adjective, self.chance(0.3), standard)))

    def profession(self) -> Sentence:
        subject = self.somebody()
        while not isinstance(who := pronoun_for(subject), Pronoun) or who.person != "er":
            subject = self.somebody()
        if isinstance(subject, NounPhrase) and "kin" not in subject.noun.kinds:
            subject = who
        noun = self.noun(["job"])
        if who == SHE:
            noun = noun.woman()
        words = [word for word in lexicon.ADJECTIVES if word.english in ("good", "famous", "young", "friendly")]
        adjective = (self.pick(words),) if self.chance(0.3) else ()
        tense: Tense = "past" if self.chance(0.2) else "present"
        predicate = NounPhrase(noun, lexicon.A, False, adjective)
        return Sentence(Clause(subject, lexicon.BE, tense, predicate=predicate, negated=self.chance(0.2)))

    def whereabouts(self) -> Sentence:
        tense: Tense = "past" if self.chance(0.4) else "present"
        negated = self.chance(0.15)
        if self.chance(0.5):
            return Sentence(Clause(self.somebody(), lexicon.BE, tense, place=self.location("at")))
        subject = self.noun_phrase(self.noun(["thing"]), "known")
        return Sentence(Clause(subject, lexicon.BE, tense, negated=negated, place=self.spot()))

    def existence(self) -> Sentence:
        use = self.pick(["a", "number", "many"])
        noun = self.noun(["building", "plant", "animal", "human"])
        determiner, plural = self._determiner(use, noun)
        what = NounPhrase(noun, determiner, plural, self.adjectives_of(noun, 0.3))
        kind = "town" if "building" in noun.kinds else "park" if "plant" in noun.kinds else "outdoors"
        place = self.noun([kind])
        while "inside" not in place.kinds:
            place = self.noun([kind])
        there = Place("in", "in", "dat", NounPhrase(place, lexicon.THE))
        tense: Tense = "past" if self.chance(0.25) else "present"
        return Sentence(Clause(THERE, lexicon.THERE_IS, tense, object=what, place=there))

    def price(self) -> Sentence:
        subject = self.noun_phrase(self.noun(["gift", "clothing", "food", "ticket"]), "known")
        if self.chance(0.3):
            return Sentence(Clause(subject, lexicon.COST, manner=question("price")), "question")
        euros = NounPhrase(self.noun(["euro"]), self.pick(lexicon.NUMBERS), plural=True)
        return Sentence(Clause(subject, lexicon.COST, object=euros))

    def command(self) -> Sentence:
        verb = self.pick([verb for verb in PERSONAL if "command" in verb.traits])
        it = self.clause([verb], subject=YOU, era="habit", plain=True)
        return Sentence(replace(it, tense="present", modal=None, frequency=None, time=None, gladly=False), "command")

    # Questions

    def yes_no(self) -> Sentence:
        it = self.clause()
        return Sentence(settle(replace(it, negated=False, time_first=False)), "question")

    def who_question(self) -> Sentence:
        it = self.clause(PERSONAL, plain=True)
        return Sentence(settle(replace(it, subject=WHO, negated=False)), "question")

    def object_question(self) -> Sentence:
        verb = self.pick([verb for verb in TRANSITIVE if "catch" != verb.base])
        it = self.clause([verb], plain=True)
        what = it.object
        if isinstance(what, NounPhrase) and "mass" not in what.noun.kinds and self.chance(0.5):
            plural = what.plural or self.chance(0.3)
            many = plural and "kin" not in what.noun.kinds and not verb.german_preposition and self.chance(0.6)
            asked: Nominal = NounPhrase(what.noun, lexicon.HOW_MANY if many else lexicon.WHICH, plural)
        elif isinstance(what, NounPhrase) and not {"human", "kin", "baby"} & set(what.noun.kinds):
            asked = NounPhrase(what.noun, lexicon.WHICH) if verb.german_preposition or verb.case == "dat" else WHAT
        else:
            asked = WHO
        return Sentence(settle(replace(it, object=asked, negated=False)), "question")

    def adverb_question(self) -> Sentence:
        it = self.asked_adverb()
        return Sentence(it, "question")

    def asked_adverb(self) -> Clause:
        """where, when or why, over a clause that leaves that part open"""
        match self.weighted(where=3, when=2, why=3):
            case "where":
                verbs = [verb for verb in PERSONAL if any(trait.endswith("!") for trait in verb.traits)]
                verb = self.pick(verbs)
                goal = any(trait.endswith("to!") for trait in verb.traits)
                it = replace(
                    self.clause([verb], plain=True), place=question("goal" if goal else "place"), negated=False
                )
            case "when":
                moving = [verb for verb in lexicon.VERBS if "static" not in verb.traits or "event" in verb.subjects]
                it = replace(
                    self.clause(moving, plain=True, era=self.weighted(past=1, future=1)), time=question("time")
                )
                it = replace(it, negated=False, tense="past" if it.tense == "perfect" else it.tense)
            case _:
                it = replace(self.clause(plain=True), reason=question("reason"))
        return settle(it)

    def degree_question(self) -> Sentence:
        words = [word for word in lexicon.ADJECTIVES if word.english in ("old", "big", "expensive", "heavy", "long")]
        adjective = self.pick(words)
        subject = self.noun_phrase(self.noun(adjective.kinds), "known", adjective=0.0)
        return Sentence(Clause(subject, lexicon.BE, predicate=Degree(adjective)), "question")

    # Sentences of two clauses

    def reason(self) -> Sentence:
        """because, although"""
        era = self.weighted(past=1, now=1)
        main = self.clause(era=era, plain=self.chance(0.5))
        who = pronoun_for(main.subject)
        link = self.weighted(because=3, although=1)
        if who and self.chance(0.6):
            inner = (
                self.state(who, era) if self.chance(0.6) else self.clause(PERSONAL, subject=who, era=era, plain=True)
            )
        else:
            inner = self.weather(era)
        return self.joined(main, link, inner, first=0.15)

    def condition(self) -> Sentence:
        main = self.clause(PERSONAL, era="future", plain=True)
        who = pronoun_for(main.subject)
        if who and self.chance(0.5):
            inner = self.state(who, "habit")
        elif self.chance(0.5):
            inner = self.weather("habit")
        else:
            inner = self.clause(PERSONAL, era="habit", plain=True)
        return self.joined(main, "if", inner, first=0.6)

    def moment(self) -> Sentence:
        main = self.clause([verb for verb in PERSONAL if "static" not in verb.traits], era="past", plain=True)
        inner = self.clause(SUDDEN, era="past", plain=True)
        main, inner = (replace(it, tense="past", modal=None) for it in (main, inner))
        return self.joined(main, "when", inner, first=0.5)

    def meanwhile(self) -> Sentence:
        era = self.weighted(past=1, now=1)
        main, inner = (self.clause(LASTING, era=era, plain=True) for _ in range(2))
        tense: Tense = "past" if era == "past" else "progressive"
        main, inner = (replace(it, tense=tense, modal=None, negated=False) for it in (main, inner))
        return self.joined(main, "while", inner, first=0.3)

    def earlier(self) -> Sentence:
        era = self.weighted(past=1, habit=1)
        verbs = [verb for verb in PERSONAL if "static" not in verb.traits]
        main = self.clause(verbs, era=era, plain=True)
        who = pronoun_for(main.subject) or self.somebody()
        inner = self.clause(verbs, subject=who, era=era, plain=True)
        tense: Tense = "past" if era == "past" else "present"
        main, inner = (replace(it, tense=tense, modal=None, negated=False) for it in (main, inner))
        return self.joined(main, "before", inner, first=0.4)

    def joined(self, main: Clause, link: str, inner: Clause, first: float) -> Sentence:
        ahead = self.chance(first) and not main.time_first
        if ahead and isinstance(inner.subject, Pronoun) and inner.subject == pronoun_for(main.subject):
            inner, main = replace(inner, subject=main.subject), replace(main, subject=inner.subject)
        return Sentence(settle(main), linked=Linked(link, settle(inner)), linked_first=ahead)

    def report(self) -> Sentence:
        """say that, ask whether, know where"""
        trait = self.weighted(that=5, whether=3, where=3)
        verbs = [verb for verb in lexicon.CLAUSE_VERBS.values() if trait in verb.traits]
        verb = self.pick(verbs) if trait != "whether" or self.chance(0.5) else lexicon.CLAUSE_VERBS["know"]
        tense: Tense = "past" if self.chance(0.3) else "present"
        negated = verb.base == "know" and trait != "that"
        if trait == "where":
            complement = Linked("", self.asked_adverb())
        else:
            inner = self.clause(plain=self.chance(0.7))
            complement = Linked(trait, replace(inner, time_first=False))
        return Sentence(Clause(self.somebody(), verb, tense, negated=negated, complement=complement))

    def intention(self) -> Sentence:
        """try to, decide to: an infinitive with zu"""
        verb = self.pick([verb for verb in lexicon.CLAUSE_VERBS.values() if "to" in verb.traits])
        tense: Tense = "past" if self.chance(0.6) else "present"
        subject = self.somebody()
        inner = self.clause([verb for verb in PERSONAL if "command" in verb.traits], subject=subject, plain=True)
        inner = replace(inner, negated=False, modal=None, tense="present")
        return Sentence(Clause(subject, verb, tense, complement=Linked("to", inner)))

    def contrast(self) -> Sentence:
        """Two people, one verb, two things."""
        verb = self.pick([verb for verb in TRANSITIVE if "person" in verb.subjects])
        left = self.clause([verb], plain=True)
        right = self.clause([verb], plain=True, era="habit")
        while right.subject == left.subject or right.object == left.object:
            right = self.clause([verb], plain=True)
        left = replace(left, negated=False)
        right = replace(right, tense=left.tense, modal=left.modal, negated=False)
        return Sentence(settle(left), second=(self.weighted(**{"and": 2, "but": 1}), settle(right)))

    # Relative clauses

    def relative(self, noun: NounPhrase) -> Clause | None:
        """A clause about the noun, in which it is the subject or the object."""
        kinds = set(noun.noun.kinds) | ({"person"} if {"human", "kin"} & set(noun.noun.kinds) else set())
        if self.chance(0.5):
            verbs = [verb for verb in lexicon.VERBS if kinds & set(verb.subjects)]
            if not verbs:
                return None
            it = self.clause(verbs, subject=noun, plain=True)
            return replace(it, subject=Gap(noun))
        verbs = [verb for verb in TRANSITIVE if kinds & set(verb.objects) and "person" in verb.subjects]
        if not verbs:
            return None
        it = self.clause([self.pick(verbs)], subject=self.somebody(), plain=True)
        return settle(replace(it, object=Gap(noun), negated=False))

    def described(self) -> Sentence:
        """A subject or object with a relative clause."""
        it = self.clause(plain=True)
        slots = [slot for slot in ("subject", "object") if isinstance(getattr(it, slot), NounPhrase)]
        if not slots:
            return self.described()
        slot = self.pick(slots)
        noun = NounPhrase(
            getattr(it, slot).noun, lexicon.THE, self.chance(0.25) and "mass" not in getattr(it, slot).noun.kinds
        )
        relative = self.relative(noun)
        if "kin" in noun.noun.kinds or relative is None or (slot == "object" and it.verb.german_preposition):
            return self.described()
        if slot == "object" and it.place:
            it = replace(it, place=None)
        changed = replace(noun, relative=relative)
        return Sentence(settle(replace(it, subject=changed) if slot == "subject" else replace(it, object=changed)))


def same_manner(subject: Nominal, standard: Nominal) -> bool:
    """Compare names with names or relatives, nouns with other nouns."""
    if isinstance(subject, Name) or isinstance(standard, Name):
        return isinstance(standard, Name) or (isinstance(standard, NounPhrase) and "kin" in standard.noun.kinds)
    return isinstance(subject, NounPhrase) and isinstance(standard, NounPhrase) and subject.noun != standard.noun


def can_deny(subject: Nominal) -> bool:
    """`every child does not` would leave open what is denied."""
    return not isinstance(subject, NounPhrase) or subject.determiner not in (lexicon.EVERY, lexicon.ALL, lexicon.MANY)


def settle(it: Clause) -> Clause:
    """Keep English unambiguous and both languages idiomatic."""
    if it.verb.past == it.verb.base and it.tense == "past":
        it = replace(it, tense="perfect")  # they read: present or past?
    if it.recipient == SHE and isinstance(it.object, NounPhrase) and it.object.determiner == lexicon.NO_ARTICLE:
        it = replace(it, object=replace(it.object, determiner=lexicon.THE))  # her books: whose?
    if it.negated and it.modal and it.modal.english == "must":
        it = replace(it, modal=next(modal for modal in lexicon.MODALS if modal.english == "should"))
    return it


PATTERNS = {
    Writer.simple: 46,
    Writer.weather_report: 1,
    Writer.quality: 6,
    Writer.comparison: 3,
    Writer.profession: 2,
    Writer.whereabouts: 3,
    Writer.existence: 2,
    Writer.price: 1,
    Writer.command: 4,
    Writer.yes_no: 5,
    Writer.who_question: 2,
    Writer.object_question: 4,
    Writer.adverb_question: 4,
    Writer.degree_question: 1,
    Writer.reason: 5,
    Writer.condition: 3,
    Writer.moment: 2,
    Writer.meanwhile: 2,
    Writer.earlier: 2,
    Writer.report: 6,
    Writer.intention: 3,
    Writer.contrast: 3,
    Writer.described: 6,
}


def write_sentence(writer: Writer) -> Sentence:
    pattern = writer.rng.choices(list(PATTERNS), list(PATTERNS.values()))[0]
    return pattern(writer)
