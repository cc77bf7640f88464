"""Choosing plausible questions: yes or no, who and what, which and how many, where, when and why."""

from dataclasses import replace

from heedful.demo import lexicon
from heedful.demo.clauses import PERSONAL, ClauseAuthor, can_deny, settle, simple_past
from heedful.demo.phrases import adjective, is_person, question
from heedful.demo.structure import WHAT, WHO, Clause, Degree, I, Nominal, NounPhrase, Sentence

ACTIVE = [verb for verb in PERSONAL if "static" not in verb.traits]
TRANSITIVE = [verb for verb in PERSONAL if verb.objects and "optional" not in verb.traits]
SITUATED = [verb for verb in PERSONAL if "!" in "".join(verb.traits) and verb.base != "come"]


class Questioner(ClauseAuthor):
    def yes_no(self) -> Sentence:
        it = self.clause()
        while not can_ask(it):
            it = self.clause()
        return Sentence(settle(replace(it, time_first=False)), "question")

    def who_question(self) -> Sentence:
        it = self.clause(PERSONAL, plain=True)
        return Sentence(settle(replace(it, subject=WHO, negated=False)), "question")

    def object_question(self) -> Sentence:
        it = self.clause(TRANSITIVE, plain=True)
        while not can_ask(it):
            it = self.clause(TRANSITIVE, plain=True)
        return Sentence(settle(replace(it, object=self._asked(it), negated=False)), "question")

    def _asked(self, it: Clause) -> Nominal:
        """who, what, which one or how many, in place of the object"""
        indirect = bool(it.verb.german_preposition) or it.verb.case == "dat"
        if not isinstance(it.object, NounPhrase):
            return WHO
        noun, plural = it.object.noun, it.object.plural
        countable = {"mass", "kin"}.isdisjoint(noun.kinds)
        if countable and plural and not indirect and self.chance(0.6):
            return NounPhrase(noun, lexicon.HOW_MANY, True)
        if countable and self.chance(0.5):
            return NounPhrase(noun, lexicon.WHICH, plural)
        if is_person(it.object):
            return WHO
        return NounPhrase(noun, lexicon.WHICH, plural) if indirect or "animal" in noun.kinds else WHAT

    def adverb_question(self) -> Sentence:
        return Sentence(self.asked_adverb(""), "question")

    def asked_adverb(self, era: str) -> Clause:
        """where, when or why, over a clause that leaves that part open"""
        match self.pick(["where", "when", "why"]):
            case "where":
                it = self.clause(SITUATED, era=era, plain=True)
                goal = any(trait.endswith("to!") for trait in it.verb.traits)
                it = replace(it, place=question("goal" if goal else "place"), negated=False)
            case "when":
                verbs = [*ACTIVE, *(verb for verb in lexicon.VERBS if "event" in verb.subjects)]
                it = self.clause(verbs, plain=True, era=era or self.pick(["past", "future"]))
                it = replace(simple_past(it), time=question("time"), negated=False)
            case _:
                it = replace(self.clause(era=era, plain=True), reason=question("reason"))
        return settle(it) if can_ask(replace(it, negated=False)) else self.asked_adverb(era)

    def degree_question(self) -> Sentence:
        word = adjective(self.pick(["old", "big", "expensive", "heavy", "long"]))
        kinds = [kind for kind in word.kinds if kind not in ("plus", "minus", "food")]
        subject = self.noun_phrase(self.noun(*kinds), "known", quality=0.0)
        return Sentence(Clause(subject, lexicon.BE, predicate=Degree(word)), "question")


def can_ask(it: Clause) -> bool:
    never = it.frequency is not None and "like-not" in it.frequency.kinds and it.tense != "perfect"
    return can_deny(it.subject) and not it.negated and not never and it.subject != I
