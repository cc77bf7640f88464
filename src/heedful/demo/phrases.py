"""Choosing plausible phrases: who and what, where and when. `clauses` puts them around a verb.

An `Author` is a random number generator that knows the lexicon. All its choices come from lists, never from sets,
so one seed always writes the same text.
"""

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from heedful.demo import lexicon
from heedful.demo.lexicon import Adjective, Determiner, Name, Noun, Phrase, phrase
from heedful.demo.structure import HE, PRONOUNS, SHE, THEY, WE, YOU, Both, I, Nominal, NounPhrase, Place, Pronoun

T = TypeVar("T")

PEOPLE = [name for name in lexicon.NAMES if name.kind != "place"]
PLACES = [name for name in lexicon.NAMES if name.kind == "place"]
OWNED = {
    *("ours", "kin", "pet", "farm", "food", "drink", "text", "thing", "opens", "device", "own", "clothing"),
    *("furniture", "gift", "money", "issue", "room", "garden"),
}
WAYS_TO_NAME = {"pronoun": 30, "name": 22, "kin": 20, "human": 26, "both": 2}
ANYWHERE = ("inside", "shore", "market", "market")
OUTDOORS = ("garden", "park", "forest", "lake", "village")


def weights(text: str) -> dict[str, int]:
    """`the 40  a 6` as a mapping"""
    words = text.split()
    return {name: int(weight) for name, weight in zip(words[::2], words[1::2], strict=True)}


# How often each determiner is used, by the use of the noun phrase; `s` marks plurals.
DETERMINERS = {
    "subject": weights(
        "the 40  the_s 16  my 16  my_s 5  a 6  this 6  this_s 3  owner 5  number 5  many 2  some 2  all_s 3  every 3"
    ),
    "object": weights(
        "the 30  the_s 10  my 14  my_s 5  a 26  this 6  this_s 3  owner 5  number 6  many 3  some 3  bare_s 10  all_s 2"
    ),
    "negated": weights("the 30  the_s 8  my 14  my_s 4  a 24  this 6  this_s 3  owner 5  bare_s 14"),
    "known": weights("the 40  the_s 12  my 14  my_s 5  this 6  this_s 3  owner 5"),
    "pointed": weights("the 60  the_s 15  this 12  this_s 6"),
    "general": weights("the 30  the_s 10  my 14  my_s 5  this 8  this_s 4  owner 5  bare_s 20"),
}
MASS = {
    "pointed": weights("the 30  this 10"),
    "subject": weights("the 30  my 14  this 5  owner 5"),
    "object": weights("the 20  my 10  this 4  owner 4  bare 55"),
    "negated": weights("the 20  my 8  this 4  owner 4  bare 60"),
    "known": weights("the 30  my 14  this 5  owner 5"),
    "general": weights("the 20  my 10  this 4  owner 4  bare 55"),
}
RELATED = {"subject": weights("my 50  my_s 12  a 10"), "object": weights("my 50  my_s 12  a 20")}
FORMS: dict[str, tuple[Determiner, bool]] = {
    "the": (lexicon.THE, False), "the_s": (lexicon.THE, True), "owner": (lexicon.THE, False),
    "a": (lexicon.A, False), "bare": (lexicon.NO_ARTICLE, False), "bare_s": (lexicon.NO_ARTICLE, True),
    "this": (lexicon.THIS, False), "this_s": (lexicon.THIS, True), "every": (lexicon.EVERY, False),
    "many": (lexicon.MANY, True), "some": (lexicon.SOME, True), "all_s": (lexicon.ALL, True),
}  # fmt: skip


@cache
def nouns(kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    return tuple(noun for kind in kinds for noun in lexicon.NOUNS if kind in noun.kinds)


@cache
def adjectives(noun: Noun) -> tuple[Adjective, ...]:
    return tuple(word for word in lexicon.ADJECTIVES if not set(noun.kinds).isdisjoint(word.kinds))


@cache
def phrases(kind: str) -> tuple[Phrase, ...]:
    return tuple(entry for entry in lexicon.PHRASES if kind in entry.kinds and "question" not in entry.kinds)


def question(kind: str) -> Phrase:
    return next(entry for entry in lexicon.PHRASES if kind in entry.kinds and "question" in entry.kinds)


def adjective(english: str) -> Adjective:
    return next(word for word in lexicon.ADJECTIVES if word.english == english)


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


def is_person(nominal: Nominal) -> bool:
    return not isinstance(nominal, NounPhrase) or not {"human", "kin"}.isdisjoint(nominal.noun.kinds)


def clashes(subject: Nominal, other: Nominal) -> bool:
    """I see me, Anna helps Anna, the dog sees a dog."""
    circle = {I: "we", WE: "we", YOU: "you"}
    match subject, other:
        case Pronoun(), Pronoun():
            return circle.get(subject, "subject") == circle.get(other, "other")
        case ((Name() | Both()), Name()):
            return True  # case does not show on names: who helps whom?
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

    def weighted(self, weights: dict[str, int]) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    # Who and what

    def noun(self, *kinds: str) -> Noun:
        return self.pick(nouns(kinds))

    def person_phrase(self, use: str = "subject") -> Nominal:
        """A person, in any way people are spoken of."""
        match self.weighted(WAYS_TO_NAME if use == "subject" else WAYS_TO_NAME | {"both": 0}):
            case "pronoun":
                return self.pick(PRONOUNS)
            case "name":
                return self.pick(PEOPLE)
            case "both":
                return Both(*self.rng.sample(PEOPLE, 2))
            case kind:
                return self.noun_phrase(self.noun(kind), use)

    def nominal(
        self, kinds: Sequence[str], use: str, avoid: Nominal | None = None, one: bool = False, bare: bool = True
    ) -> Nominal:
        """A person or thing of one of the kinds; `person` is a kind like the others."""
        while True:
            kind = self.pick(kinds)
            person = kind == "person"
            nominal = self.person_phrase(use) if person else self.noun_phrase(self.noun(kind), use, one=one, bare=bare)
            if avoid is None or not clashes(avoid, nominal):
                return nominal

    def noun_phrase(
        self, noun: Noun, use: str = "object", *, one: bool = False, bare: bool = True, quality: float = 0.28
    ) -> NounPhrase:
        """`use` is a row of DETERMINERS, `one` leaves out plurals, `bare` allows nouns without article."""
        if "kin" in noun.kinds:
            return self._kin(noun)
        choice = self.weighted(determiner_weights(noun, use, one, bare))
        if choice == "number":
            countable = use == "object" and not {"food", "text", "dishes", "plant", "animal"}.isdisjoint(noun.kinds)
            determiner, plural = self.pick(lexicon.NUMBERS if countable else lexicon.NUMBERS[:4]), True
        elif choice.startswith("my"):
            determiner, plural = self.pick(lexicon.POSSESSIVES), choice == "my_s"
        else:
            determiner, plural = FORMS[choice]
        owner = self._owner() if choice == "owner" else None
        return NounPhrase(noun, determiner, plural, self.qualities(noun, quality), owner)

    def _kin(self, noun: Noun) -> NounPhrase:
        plural = "single" not in noun.kinds and self.chance(0.15)
        if self.chance(0.12):
            return NounPhrase(noun, lexicon.THE, plural, (), self._owner())
        return NounPhrase(noun, self.pick(lexicon.POSSESSIVES), plural)

    def _owner(self) -> Name | NounPhrase:
        if self.chance(0.5):
            return self.pick(PEOPLE)
        owner = self.noun("human")
        return NounPhrase(owner, self.pick(lexicon.POSSESSIVES) if "related" in owner.kinds else lexicon.THE)

    def qualities(self, noun: Noun, probability: float) -> tuple[Adjective, ...]:
        """No adjective, one, or two where a colour comes second; passing states are rare before a noun."""
        fitting = adjectives(noun)
        if not fitting or not self.chance(probability):
            return ()
        first = self.pick(fitting)
        if "state" in first.kinds and self.chance(0.7):
            return ()
        colors = [word for word in fitting if "colour" in word.kinds]
        if colors and first.english in ("old", "new", "small", "big") and self.chance(0.3):
            return first, self.pick(colors)
        return (first,)

    # Where and when

    def location(self, trait: str, subject: Nominal, venues: Sequence[str] = ANYWHERE) -> Phrase | Place:  # noqa: PLR0911
        """Where the subject is or does something, by the trait of a verb and the kinds of place that suit it."""
        match trait:
            case "shore":
                return Place("in", "in", "dat", NounPhrase(self.noun("lake"), lexicon.THE))
            case "stop":
                if self.chance(0.3):
                    return Place("in", "in", "dat", self.pick(PLACES[:5]))
                return Place("at", "an", "dat", NounPhrase(self.noun("stop"), lexicon.THE))
            case "seat" if self.chance(0.5):
                return Place("on", "auf", "dat", self._single(self.noun("seat")))
            case "wall" if self.chance(0.4):
                return Place("above", "über", "dat", self._single(self.noun("sofa", "bed", "table")))
            case "wall":
                return Place("on", "an", "dat", NounPhrase(self.noun("wall"), lexicon.THE))
            case "spot" | "stand":
                return self._spot(subject, trait == "stand")
            case "home":
                if self.chance(0.5):
                    return Place("in", "in", "dat", self.pick(PLACES))
                noun = self.noun("town", "house")
                return Place("in", "in", "dat", NounPhrase(noun, lexicon.A, False, self.qualities(noun, 0.7)))
            case "at" if self.chance(0.25):
                return self.pick(phrases("place"))
            case _:
                return self._inside(self.noun(*(venues if is_person(subject) else OUTDOORS)))

    def _spot(self, subject: Nominal, upright: bool) -> Place:
        """On, under or next to a piece of furniture, in a container, or, for furniture, in a room."""
        furniture = isinstance(subject, NounPhrase) and "furniture" in subject.noun.kinds
        if furniture and self.chance(0.5):
            return Place("in", "in", "dat", self._single(self.noun("room")))
        if self.chance(0.25) and not furniture:
            containers = nouns(("cupboard",) if upright else ("inside1",))
            others = [noun for noun in containers if not isinstance(subject, NounPhrase) or noun != subject.noun]
            return Place("in", "in", "dat", self._single(self.pick(others)))
        on, under, beside = ("on", "auf", "top"), ("under", "unter", "top"), ("next to", "neben", "furniture")
        english, german, kind = beside if furniture else on if upright else self.pick([on, on, under, beside])
        noun = self.noun("table", "shelf") if upright and not furniture else self.noun(kind)
        while isinstance(subject, NounPhrase) and noun == subject.noun:
            noun = self.noun(kind)
        return Place(english, german, "dat", self._single(noun))

    def _inside(self, noun: Noun) -> Place:
        if "inside" in noun.kinds:
            return Place("in", "in", "dat", self._single(noun))
        return Place("at", "auf" if "market" in noun.kinds else "an", "dat", self._single(noun))

    def goal(self, trait: str, subject: Nominal) -> Phrase | Place:
        """Where a person or an animal goes; animals stay outdoors."""
        if trait in ("city-to", "far-to") and self.chance(0.6):
            return Place("to", "nach", "dat", self.pick(PLACES))
        if trait == "far-to" or (trait != "to" and self.chance(0.35)):
            return self.pick(phrases("goal"))
        near = ["stop", "shore", "city"] if trait == "city-to" else ["inside", "stop", "shore", "market", "market"]
        noun = self.noun(*(near if is_person(subject) else OUTDOORS))
        if "stop" in noun.kinds:
            return Place("to", "zu", "dat", self._single(noun))
        german = "in" if "inside" in noun.kinds else "an" if "shore" in noun.kinds else "auf"
        return Place("to", german, "acc", self._single(noun))

    def _single(self, noun: Noun) -> NounPhrase:
        """One thing that is known: the kitchen, the big kitchen, our kitchen."""
        mine = not OWNED.isdisjoint(noun.kinds) and self.chance(0.2)
        determiner = self.pick(lexicon.POSSESSIVES) if mine else lexicon.THE
        return NounPhrase(noun, determiner, False, self.qualities(noun, 0.15))

    def clock(self) -> Phrase:
        position = int(self.rng.random() * 12)
        english, german = lexicon.HOURS[position]
        if self.chance(0.3):
            following = lexicon.HOURS[(position + 1) % 12][1]
            return phrase(f"at half_past {english}", f"um halb {'eins' if following == 'ein' else following}")
        return phrase(f"at {english} o'clock", f"um {german} Uhr")

    def time(self, era: str, subject: Nominal, seasonal: bool = False) -> Phrase:
        """When it is; appointments are for people and things that run on time."""
        if isinstance(subject, NounPhrase) and not {"animal", "baby", "rings"}.isdisjoint(subject.noun.kinds):
            return self.pick([entry for entry in phrases(era) if "anyone" in entry.kinds])
        if era != "now" and self.chance(0.2):
            return self.clock()
        return self.pick(phrases(era + "-season" if seasonal and era != "now" and self.chance(0.7) else era))


@cache
def _weights(noun: Noun, use: str, one: bool, bare: bool) -> tuple[tuple[str, int], ...]:
    if "mass" in noun.kinds:
        table = MASS[use]
    elif "related" in noun.kinds:
        table = RELATED.get(use, RELATED["subject"])
    else:
        table = DETERMINERS[use]
    banned = set[str]()
    if OWNED.isdisjoint(noun.kinds):
        banned |= {"my", "my_s", "owner"}
    if "human" in noun.kinds:
        banned |= {"owner", "bare_s"}
    plurals = {name for name in table if name.endswith("_s")} | {"number", "many", "some"}
    if "several" in noun.kinds:
        banned |= (table.keys() - plurals) | ({"number", "many", "some"} if one else set())
    elif one or "room" in noun.kinds or "rings" in noun.kinds:
        banned |= plurals | {"every"}
    if not bare:
        banned |= {"bare_s"}
    if use == "known":
        banned |= {"a"}
    return tuple((name, weight) for name, weight in table.items() if name not in banned)


def determiner_weights(noun: Noun, use: str, one: bool, bare: bool) -> dict[str, int]:
    return dict(_weights(noun, use, one, bare))
