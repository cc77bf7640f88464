"""Choosing plausible clauses: a verb, those who take part in it as its kinds demand, and what surrounds it."""

from collections.abc import Sequence
from dataclasses import replace

from heedful.demo import lexicon
from heedful.demo.lexicon import Adjective, Modal, Phrase, Verb
from heedful.demo.phrases import ANYWHERE, Author, adjective, adjectives, is_person, phrases, pronoun_for
from heedful.demo.structure import IT, PRONOUNS, SHE, Clause, Nominal, NounPhrase, Place, Tense

PAST_MODALS = [modal for modal in lexicon.MODALS if modal.english in ("could", "wanted to", "had to")]
PRESENT_MODALS = [modal for modal in lexicon.MODALS if modal not in PAST_MODALS]
PERSONAL = [verb for verb in lexicon.VERBS if "person" in verb.subjects]
STATES = [word for word in lexicon.ADJECTIVES if "state" in word.kinds]
MANNERS = {entry.english[0][0]: entry for entry in phrases("manner")}
LOCATIONS = ("at", "shore", "stop", "seat", "wall", "spot", "stand", "home")


def verbs_with(*traits: str) -> list[Verb]:
    """Verbs of people that have one of the traits."""
    return [verb for verb in PERSONAL if not set(traits).isdisjoint(verb.traits)]


class ClauseAuthor(Author):
    def clause(
        self,
        verbs: Sequence[Verb] = lexicon.VERBS,
        *,
        subject: Nominal | None = None,
        era: str = "",
        plain: bool = False,
    ) -> Clause:
        """A clause around one of the verbs; `era` is past, now, habit or future, a `plain` clause has no adverbs."""
        verb = self.pick(verbs)
        while subject and is_person(subject) and "person" not in verb.subjects:
            verb = self.pick(verbs)
        who = subject or self.nominal(verb.subjects, "pointed" if "pointed" in verb.traits else "subject")
        era = self.era(verb, era)
        tense, modal = self.tense(verb, era, is_person(who))
        negated = self.chance(0.04 if plain else 0.13) and can_deny(who)
        it = self.with_objects(Clause(who, verb, tense, modal, negated))
        it = self.with_place(it, plain)
        return settle(it if plain else self.with_adverbs(it, era))

    def era(self, verb: Verb, era: str) -> str:
        if "present" in verb.traits:
            return "habit"
        if era:
            return era
        static, once = "static" in verb.traits, "once" in verb.traits
        if "mishap" in verb.traits:
            return "past"
        if static and "timed" not in verb.traits:
            return self.weighted({"past": 35, "habit": 65})
        return self.weighted({"past": 36, "now": 0 if static else 22, "habit": 0 if once else 24, "future": 16})

    def tense(self, verb: Verb, era: str, personal: bool) -> tuple[Tense, Modal | None]:
        static = "static" in verb.traits
        if personal and not static and "involuntary" not in verb.traits and self.chance(0.2):
            return "present", self.pick(PAST_MODALS if era == "past" else PRESENT_MODALS)
        match era:
            case "past" if static or self.chance(0.7):
                return "past", None
            case "past":
                return "past progressive" if "lasting" in verb.traits and self.chance(0.5) else "perfect", None
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
        indirect = bool(verb.german_preposition) or verb.case == "dat"
        use = "general" if "general" in verb.traits else "negated" if it.negated else "object"
        one, bare = "one" in verb.traits, "like" in verb.traits
        thing = self.nominal(verb.objects, "known" if indirect else use, it.subject, one, bare)
        it = replace(it, object=self.own(thing, it.subject))
        if "gives" in verb.traits or ("gives-to" in verb.traits and self.chance(0.6)):
            return replace(it, recipient=self.receiver(it.subject))
        if "gives?" in verb.traits and self.chance(0.15):
            return replace(it, recipient=self.receiver(it.subject))
        return it

    def receiver(self, subject: Nominal) -> Nominal:
        return self.own(self.nominal(["person"], "known", subject), subject)

    def own(self, thing: Nominal, subject: Nominal) -> Nominal:
        """People mostly act on what is theirs: she helps her brother."""
        who = pronoun_for(subject)
        if who and isinstance(thing, NounPhrase) and thing.determiner in lexicon.POSSESSIVES and self.chance(0.6):
            return replace(thing, determiner=lexicon.POSSESSIVES[PRONOUNS.index(who)])
        return thing

    def with_place(self, it: Clause, plain: bool) -> Clause:
        allowed = not plain and not (it.object and it.negated)
        for trait in it.verb.traits:
            if trait.endswith("to!"):
                return replace(it, place=self.goal(trait[:-1], it.subject))
            name = trait.removesuffix("!")
            if name in LOCATIONS and (trait != name or (allowed and self.chance(0.3))):
                venues = lexicon.VENUES.get(it.verb.base, ANYWHERE)
                return replace(it, place=self.location(name, it.subject, venues))
        return it

    def with_adverbs(self, it: Clause, era: str) -> Clause:
        manners = [trait for trait in it.verb.traits if trait in MANNERS or trait == "with"]
        known = it.object is None or (isinstance(it.object, NounPhrase) and it.object.determiner.definite)
        if manners and known and it.tense != "perfect" and not isinstance(it.place, Phrase) and self.chance(0.45):
            name = self.pick(manners)
            it = replace(it, manner=MANNERS[name] if name != "with" else self.company(it.subject))
        if it.tense == "perfect":
            return self.with_completion(it, known)
        if era == "habit" and not it.modal:
            return self.with_habit(it)
        if self.chance(0.45) and ("static" not in it.verb.traits or "timed" in it.verb.traits):
            era = "future" if it.modal and era != "past" else era
            time = self.time(era, it.subject, "seasonal" in it.verb.traits)
            it = replace(it, time=time, time_first=self.chance(0.4))
        return it

    def with_completion(self, it: Clause, known: bool) -> Clause:
        """already, or not yet"""
        if it.negated:
            return replace(it, time=phrases("yet")[0]) if known and self.chance(0.6) else it
        return replace(it, frequency=phrases("done")[0]) if self.chance(0.5) else it

    def with_habit(self, it: Clause) -> Clause:  # noqa: PLR0911
        if "scheduled" in it.verb.traits:
            return replace(it, time=self.clock())
        if "static" in it.verb.traits or "once" in it.verb.traits:
            return it
        generic = isinstance(it.object, NounPhrase) and it.object.determiner == lexicon.NO_ARTICLE
        glad = is_person(it.subject) and "like" in it.verb.traits and (it.object is None or generic)
        if glad and self.chance(0.5):
            return replace(it, gladly=True, manner=it.manner if isinstance(it.manner, Place) else None)
        if it.negated:
            return it
        choice = self.weighted({"time": 40, "frequency": 30, "nothing": 30})
        if choice == "time":
            return replace(
                it, time=self.time("habit", it.subject, "seasonal" in it.verb.traits), time_first=self.chance(0.4)
            )
        if choice == "frequency":
            return replace(it, frequency=self.pick(phrases("frequency")))
        return it

    def company(self, subject: Nominal) -> Place:
        return Place("with", "mit", "dat", self.nominal(["person"], "known", subject))

    def states(self, subject: Nominal) -> list[Adjective]:
        """tired, hungry: the passing states the subject can be in"""
        if isinstance(subject, NounPhrase):
            return [word for word in adjectives(subject.noun) if word in STATES]
        return STATES

    def state(self, subject: Nominal, era: str, of: Nominal | None = None) -> Clause:
        """The subject is in some state; `of` is the nominal that a pronoun stands for."""
        tense: Tense = "past" if era == "past" else "present"
        word = self.pick(self.states(of or subject))
        return Clause(subject, lexicon.BE, tense, predicate=word, negated=self.chance(0.15) and can_deny(subject))

    def weather(self, era: str) -> Clause:
        if era != "future" and self.chance(0.4):
            tense: Tense = "past" if era == "past" else "present"
            return Clause(IT, lexicon.BE, tense, predicate=adjective(self.pick(["cold", "warm", "hot", "dark"])))
        tenses: dict[str, Tense] = {"past": "past", "now": "progressive", "future": "future", "habit": "present"}
        return Clause(IT, self.pick([lexicon.RAIN, lexicon.SNOW]), tenses[era])

    def circumstance(self, main: Clause, era: str) -> Clause:
        """Why the subject of `main` might do what it does: a state, a plan, the weather."""
        who = pronoun_for(main.subject)
        choice = self.weighted({"state": 50, "plan": 35, "weather": 15})
        if who and choice == "state" and self.states(main.subject):
            return self.state(who, era, of=main.subject)
        if who and choice == "plan" and is_person(main.subject):
            words = ("had to", "wanted to") if era == "past" else ("has to", "wants to")
            modal = self.pick([modal for modal in lexicon.MODALS if modal.english in words])
            it = self.clause(verbs_with("plan"), subject=who, plain=True)
            return replace(it, tense="present", modal=modal, negated=False)
        return self.weather(era)


def simple_past(it: Clause) -> Clause:
    """The clause in the past, without the adverbs that go with the perfect."""
    if it.tense not in ("perfect", "past progressive"):
        return it
    time = None if it.time in phrases("yet") else it.time
    frequency = None if it.frequency in phrases("done") else it.frequency
    return settle(replace(it, tense="past", time=time, frequency=frequency))


def can_deny(subject: Nominal) -> bool:
    """`every child does not` would leave open what is denied."""
    vague = (lexicon.EVERY, lexicon.ALL, lexicon.MANY, lexicon.SOME, lexicon.A)
    return not isinstance(subject, NounPhrase) or subject.determiner not in vague


def settle(it: Clause) -> Clause:
    """Keep English unambiguous and both languages idiomatic."""
    if it.verb.past == it.verb.base and it.tense == "past":
        it = replace(it, tense="past progressive")  # they read: present or past?
    if it.recipient == SHE and isinstance(it.object, NounPhrase) and it.object.determiner == lexicon.NO_ARTICLE:
        it = replace(it, object=replace(it.object, determiner=lexicon.THE))  # her books: whose?
    if it.negated and it.modal and it.modal.english == "must":
        it = replace(it, modal=next(modal for modal in lexicon.MODALS if modal.english == "should"))
    return it
