"""Choosing plausible phrases: who and what, where and when. `sentences` builds clauses out of them.

An `Author` is a random number generator that knows the lexicon. All its choices come from lists, never from sets,
so one seed always writes the same text.
"""

import random
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TypeVar

from heedful.demo import lexicon
from heedful.demo.lexicon import Adjective, Determiner, Name, Noun, Phrase, phrase
from heedful.demo.structure import HE, PRONOUNS, SHE, THEY, YOU, Both, I, Nominal, NounPhrase, Place, Pronoun, WE

T = TypeVar("T")

OWNED = frozenset(
    "ours kin pet farm food drink text thing opens device own clothing furniture gift money issue room garden house".split()
)
PEOPLE = [name for name in lexicon.NAMES if name.kind != "place"]
TOWNS = [name for name in lexicon.NAMES if name.kind == "place"]
SINGULAR_POSSESSION, PLURAL_POSSESSION = "my", "my plural"


@cache
def nouns(kind: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in lexicon.NOUNS if kind in noun.kinds)


@cache
def adjectives(noun: Noun) -> tuple[Adjective, ...]:
    return tuple(word for word in lexicon.ADJECTIVES if not set(noun.kinds).isdisjoint(word.kinds))


@cache
def phrases(kind: str) -> tuple[Phrase, ...]:
    return tuple(entry for entry in lexicon.PHRASES if kind in entry.kinds and "question" not in entry.kinds)


def question(kind: str) -> Phrase:
    return next(entry for entry in lexicon.PHRASES if kind in entry.kinds and "question" in entry.kinds)


def pronoun_for(nominal: Nominal) -> Pronoun | None:
    """The pronoun that takes the nominal up again; None where English `it` would hide the German gender."""
    match nominal:
        case Pronoun():
            return nominal
        case Name():
            return SHE if nominal.kind == "female" else HE
        case Both() | NounPhrase(plural=True):
            return THEY
        case NounPhrase(noun=noun):
            return HE if "male" in noun.kinds else SHE if "female" in noun.kinds else None
        case _:
            return None


def clashes(subject: Nominal, other: Nominal) -> bool:
    """I see me, Anna helps Anna, the dog sees a dog."""
    first = {I: "we", WE: "we", YOU: "you"}
    match subject, other:
        case Pronoun(), Pronoun():
            return first.get(subject, "subject") == first.get(other, "other")
        case Both(), Name():
            return other in (subject.left, subject.right)
        case NounPhrase(), NounPhrase():
            return subject.noun == other.noun
        case _:
            return subject == other


class Author:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def weighted(self, **weights: float) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    # Who and what

    def noun(self, kinds: Iterable[str]) -> Noun:
        return self.pick([noun for kind in kinds for noun in nouns(kind)])

    def somebody(self, determiners: str = "subject") -> Nominal:
        """A person, in any way people are spoken of."""
        match self.weighted(pronoun=30, name=22, kin=20, human=26, both=2 if determiners == "subject" else 0):
            case "pronoun":
                return self.pick(PRONOUNS)
            case "name":
                return self.pick(PEOPLE)
            case "both":
                left, right = self.rng.sample(PEOPLE, 2)
                return Both(left, right)
            case kind:
                return self.noun_phrase(self.noun([kind]), determiners)

    def nominal(self, kinds: Sequence[str], determiners: str, avoid: Nominal | None = None) -> Nominal:
        """Somebody or something of one of the kinds; `person` is a kind like the others."""
        while True:
            kind = self.pick(kinds)
            found = self.somebody(determiners) if kind == "person" else self.noun_phrase(self.noun([kind]), determiners)
            if avoid is None or not clashes(avoid, found):
                return found

    def noun_phrase(self, noun: Noun, use: str = "object", adjective: float = 0.28) -> NounPhrase:
        """`use` says which determiners may come: subject, object, negated, known (definite) or generic (bare)."""
        if "kin" in noun.kinds:
            return self._kin(noun)
        choice = self._determiner_choice(noun, use)
        determiner, plural = self._determiner(choice, noun)
        owner = self._owner(noun) if choice == "owner" else None
        return NounPhrase(noun, determiner, plural, self.adjectives_of(noun, adjective), owner)

    def _kin(self, noun: Noun) -> NounPhrase:
        plural = "single" not in noun.kinds and self.chance(0.15)
        if self.chance(0.12):
            owner = self.pick(PEOPLE) if self.chance(0.6) else NounPhrase(self.noun(["human"]), lexicon.THE)
            return NounPhrase(noun, lexicon.THE, plural, (), owner)
        return NounPhrase(noun, self.pick(lexicon.POSSESSIVES), plural)

    def _owner(self, noun: Noun) -> Name | NounPhrase:
        if self.chance(0.5):
            return self.pick(PEOPLE)
        return NounPhrase(self.pick([owner for owner in nouns("human") if owner != noun]), lexicon.THE)

    def _determiner_choice(self, noun: Noun, use: str) -> str:
        owned = not OWNED.isdisjoint(noun.kinds)
        mine = 14.0 if owned else 0.0
        owner = 5.0 if owned and "human" not in noun.kinds else 0.0
        if "mass" in noun.kinds:
            if use == "generic":
                return "bare"
            return self.weighted(the=30, my=mine, this=5, owner=owner, bare=0 if use in ("subject", "known") else 55)
        match use:
            case "subject":
                return self.weighted(
                    the=40, the_plural=16, my=mine, my_plural=mine / 3, a=7, this=6, these=3, owner=owner,
                    number=6, many=2, some=2, every=3, all=3,
                )  # fmt: skip
            case "object":
                return self.weighted(
                    the=30, the_plural=10, my=mine, my_plural=mine / 3, a=26, this=6, these=3, owner=owner,
                    number=7, many=3, some=3, bare_plural=5, all=2,
                )  # fmt: skip
            case "negated":
                return self.weighted(
                    the=30, the_plural=8, my=mine, my_plural=mine / 3, a=24, this=6, these=3, owner=owner, bare_plural=7
                )
            case "known":
                return self.weighted(the=40, the_plural=12, my=mine, my_plural=mine / 3, this=6, these=3, owner=owner)
            case _:
                return "bare_plural"

    def _determiner(self, choice: str, noun: Noun) -> tuple[Determiner, bool]:
        """The determiner and whether the noun is plural."""
        fixed = {
            "the": (lexicon.THE, False), "the_plural": (lexicon.THE, True), "owner": (lexicon.THE, False),
            "a": (lexicon.A, False), "this": (lexicon.THIS, False), "these": (lexicon.THIS, True),
            "many": (lexicon.MANY, True), "some": (lexicon.SOME, True), "every": (lexicon.EVERY, False),
            "all": (lexicon.ALL, True), "bare": (lexicon.NO_ARTICLE, False), "bare_plural": (lexicon.NO_ARTICLE, True),
        }  # fmt: skip
        if choice in fixed:
            return fixed[choice]
        if choice == "number":
            return self.pick(lexicon.NUMBERS), True
        return self.pick(lexicon.POSSESSIVES), choice == "my_plural"

    def adjectives_of(self, noun: Noun, probability: float) -> tuple[Adjective, ...]:
        fitting = adjectives(noun)
        if not fitting or not self.chance(probability):
            return ()
        first = self.pick(fitting)
        colours = [word for word in fitting if "colour" in word.kinds]
        if (
            colours
            and "colour" not in first.kinds
            and first.english in ("old", "new", "small", "big")
            and self.chance(0.3)
        ):
            return first, self.pick(colours)
        return (first,)

    # Where and when

    def location(self, trait: str) -> Phrase | Place:
        """Where something is or happens, for the trait of a verb."""
        the = lexicon.THE
        match trait:
            case "shore":
                return Place("in", "in", "dat", NounPhrase(self.noun(["lake"]), the))
            case "stop":
                if self.chance(0.3):
                    return Place("in", "in", "dat", self.pick(TOWNS[:5]))
                return Place("at", "an", "dat", NounPhrase(self.noun(["stop"]), the))
            case "seat":
                if self.chance(0.5):
                    return Place("on", "auf", "dat", self.noun_phrase(self.noun(["seat"]), "known"))
                return self.inside()
            case "wall":
                if self.chance(0.4):
                    return Place("above", "über", "dat", NounPhrase(self.noun(["sofa", "bed", "table"]), the))
                return Place("on", "an", "dat", NounPhrase(self.noun(["wall"]), the))
            case "spot":
                return self.spot()
            case "home":
                if self.chance(0.5):
                    return Place("in", "in", "dat", self.pick(TOWNS))
                noun = self.noun(["town", "house"])
                adjective = self.adjectives_of(noun, 0.6)
                return Place("in", "in", "dat", NounPhrase(noun, lexicon.A, False, adjective))
            case _:
                return self.pick(phrases("place")) if self.chance(0.25) else self.inside()

    def spot(self) -> Place:
        """On, under, next to a piece of furniture, or in a container."""
        if self.chance(0.25):
            return Place("in", "in", "dat", self._single(self.noun(["inside1"])))
        english, german = self.pick([("on", "auf"), ("on", "auf"), ("under", "unter"), ("next to", "neben")])
        kind = "top" if german == "auf" else "furniture"
        return Place(english, german, "dat", self._single(self.noun([kind])))

    def inside(self) -> Place:
        noun = self.noun(["inside", "inside", "shore", "market"])
        if "inside" in noun.kinds:
            return Place("in", "in", "dat", self._single(noun))
        return Place("at", "an" if "shore" in noun.kinds else "auf", "dat", self._single(noun))

    def goal(self, trait: str) -> Phrase | Place:
        """Where somebody goes."""
        if trait == "city-to" and self.chance(0.55):
            return Place("to", "nach", "dat", self.pick(TOWNS))
        if trait != "to" and self.chance(0.35):
            return self.pick(phrases("goal"))
        near = ["stop", "shore", "town"] if trait == "city-to" else ["inside", "inside", "stop", "shore", "market"]
        noun = self.noun(near)
        if "stop" in noun.kinds:
            return Place("to", "zu", "dat", self._single(noun))
        german = "in" if "inside" in noun.kinds else "an" if "shore" in noun.kinds else "auf"
        return Place("to", german, "acc", self._single(noun))

    def _single(self, noun: Noun) -> NounPhrase:
        """the kitchen, sometimes the big kitchen or our kitchen"""
        owned = not OWNED.isdisjoint(noun.kinds)
        determiner = self.pick(lexicon.POSSESSIVES) if owned and self.chance(0.2) else lexicon.THE
        return NounPhrase(noun, determiner, False, self.adjectives_of(noun, 0.15))

    def clock(self) -> Phrase:
        position = int(self.rng.random() * 12)
        english, german = lexicon.HOURS[position]
        if self.chance(0.3):
            following = lexicon.HOURS[(position + 1) % 12][1]
            return phrase(f"at half_past {english}", f"um halb {'eins' if following == 'ein' else following}")
        return phrase(f"at {english} o'clock", f"um {german} Uhr")

    def time(self, era: str) -> Phrase:
        return self.clock() if era != "now" and self.chance(0.2) else self.pick(phrases(era))
