"""Words as objects: reads words.txt into nouns, verbs, adjectives and phrases that know both languages.

A *kind* is what the grammar selects by: people eat food, devices are turned on. A noun is of every kind its table row
names, and of the kind that bears its own English name. This module knows forms and kinds, never word order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple


@dataclass(frozen=True)
class Noun:
    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str  # m, f or n
    weak: bool  # the n-declension: der Junge, den Jungen
    kinds: tuple[str, ...]
    feminine: str = ""  # a woman of this profession

    def woman(self) -> "Noun":
        """The same English noun said of a woman: teacher, Lehrerin."""
        plural = self.feminine + "nen"
        return Noun(self.english, self.english_plural, self.feminine, plural, "f", False, self.kinds)


@dataclass(frozen=True)
class Name:
    english: str
    german: str
    kind: str  # female, male or place


@dataclass(frozen=True)
class Adjective:
    english: str
    german: str
    comparative: str  # empty where comparing makes no sense
    kinds: tuple[str, ...]


class Conjugation(NamedTuple):
    """German present or past: ich, du, er, wir; `sie` (they) is like `wir`."""

    ich: str
    du: str
    er: str
    wir: str


@dataclass(frozen=True)
class Verb:
    base: str
    past: str
    participle: str
    particle: str  # turn on: follows a pronoun, comes before a noun
    rest: str  # listen to: stays with the verb
    preposition: str  # wait for: translated by the German preposition
    infinitive: str  # without the separable prefix
    prefix: str
    er: str
    german_participle: str
    german_preposition: str
    sein: bool
    reflexive: bool
    case: str
    subjects: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Phrase:
    """A fixed phrase: unit by unit in the same order in both languages, each unit a few words."""

    english: tuple[tuple[str, ...], ...]
    german: tuple[tuple[str, ...], ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Determiner:
    english: str
    english_plural: str
    german: str
    pattern: str  # der, ein, strong (declined like an adjective) or bare (never declined)
    definite: bool


@dataclass(frozen=True)
class Modal:
    """A finite verb with an infinitive; `do` verbs take English do-support and agree (wants to)."""

    english: str  # third person; base and question forms follow from `style`
    style: str  # aux, do, did or be
    german: Conjugation


@cache
def _tables() -> dict[str, list[str]]:
    """The lines of each table of words.txt, by name."""
    tables: dict[str, list[str]] = {}
    for line in (files("heedful.demo") / "words.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            tables[line.strip("[]")] = lines = []
        elif line.strip() and not line.startswith("#"):
            lines.append(line)
    return tables


def _rows(table: str) -> Iterator[list[str]]:
    for line in _tables()[table]:
        yield [cell.strip() for cell in line.split(";")]


def english_plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def english_past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return _doubled(verb) + "ed"


def english_ing(verb: str) -> str:
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return _doubled(verb) + "ing"


def _doubled(verb: str) -> str:
    """stop, stopp-: a single vowel in a stressed last syllable doubles the consonant, and so does travel."""
    short = len(verb) > 2 and verb[-1] in "bdglmnpt" and verb[-2] in "aeiou" and verb[-3] not in "aeiou"
    one_syllable = sum(letter in "aeiou" for letter in verb) == 1
    return verb + verb[-1] if short and (one_syllable or verb in ("begin", "forget", "travel")) else verb


INSEPARABLE = ("be", "emp", "ent", "er", "ge", "ver", "zer")


def german_stem(infinitive: str) -> str:
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def _weak_er(infinitive: str) -> str:
    stem = german_stem(infinitive)
    return stem + ("et" if stem[-1] in "dt" else "t")


def _weak_participle(infinitive: str) -> str:
    ge = "" if infinitive.endswith("ieren") or infinitive.startswith((*INSEPARABLE, "umarm")) else "ge"
    return ge + _weak_er(infinitive)


def _noun(english: str, german: str, kinds: str) -> Noun:
    singular, *plural = english.split()
    article, german_singular, german_plural, *weak = german.split()
    tags = kinds.split()
    feminine = "".join(tag.removeprefix("feminine=") for tag in tags if tag.startswith("feminine="))
    return Noun(
        singular,
        plural[0] if plural else english_plural(singular),
        german_singular,
        german_plural,
        {"der": "m", "die": "f", "das": "n"}[article],
        bool(weak),
        (singular, *(tag for tag in tags if "=" not in tag)),
        feminine,
    )


def _adjective(english: str, german: str, kinds: str) -> Adjective:
    positive, *comparative = german.split()
    grade = comparative[0] if comparative else positive.removesuffix("e") + "er"
    return Adjective(english, positive, "" if grade == "-" else grade, tuple(kinds.split()))


def _pick(words: Iterable[str], mark: str) -> str:
    return next((word.strip("()+=") for word in words if word.startswith(mark)), "")


def _plain(words: Iterable[str]) -> list[str]:
    return [word for word in words if word[0] not in "(+="]


@cache
def _traits(infinitive: str) -> list[str]:
    return [trait for trait, verbs in _rows("traits") if infinitive in verbs.split()]


def _verb(english: str, german: str, subjects: str, objects: str, traits: str) -> Verb:
    words, german_words, object_words = english.split(), german.split(), objects.split()
    base, *forms = _plain(words)
    stem, *german_forms = _plain(german_words)
    prefix, _, infinitive = stem.rpartition("|")
    return Verb(
        base=base,
        past=forms[0] if forms else english_past(base),
        participle=forms[1] if forms else english_past(base),
        particle=_pick(words, "+"),
        rest=_pick(words, "="),
        preposition=_pick(words, "("),
        infinitive=infinitive,
        prefix=prefix,
        er=german_forms[0] if german_forms else _weak_er(infinitive),
        german_participle=german_forms[1] if german_forms else _weak_participle(infinitive),
        german_preposition=_pick(german_words, "("),
        sein="+sein" in german_words,
        reflexive="+sich" in german_words,
        case="dat" if "DAT" in object_words else "acc",
        subjects=tuple(subjects.split()),
        objects=tuple(word for word in object_words if word.islower()),
        traits=(*traits.split(), *_traits(prefix + infinitive), *(["optional"] if "?" in object_words else [])),
    )


def phrase(english: str, german: str, kinds: str = "") -> Phrase:
    def units(text: str) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(unit.split("_")) for unit in text.split())

    return Phrase(units(english), units(german), tuple(kinds.split()))


def _names() -> Iterator[Name]:
    for kind, names in _rows("names"):
        for name in names.split():
            english, _, german = name.partition("=")
            yield Name(english, german or english, kind)


def _counted(text: str) -> list[tuple[str, str]]:
    words = text.split()
    return list(zip(words[::2], words[1::2], strict=True))


NOUNS = [_noun(*row) for row in _rows("nouns")]
VERBS = [_verb(*row) for row in _rows("verbs")]
CLAUSE_VERBS = {verb.base: verb for verb in (_verb(*row) for row in _rows("clause_verbs"))}
VENUES = {verb: tuple(kinds.split()) for verb, kinds in _rows("venues")}
ADJECTIVES = [_adjective(*row) for row in _rows("adjectives")]
NAMES = list(_names())
PHRASES = [phrase(*row) for row in _rows("phrases")]
HOURS = _counted(_tables()["hours"][0])

BE = _verb("be was been", "sein ist gewesen +sein", "", "", "static preterite")
THERE_IS = _verb("be was been", "geben gibt gegeben", "", "", "static preterite")
RAIN, SNOW = _verb("rain", "regnen regnet geregnet", "", "", ""), _verb("snow", "schneien", "", "", "")
COST = _verb("cost cost cost", "kosten", "", "", "static")

THE = Determiner("the", "the", "d", "der", True)
THIS = Determiner("this", "these", "dies", "der", True)
EVERY = Determiner("every", "", "jed", "der", True)
ALL = Determiner("", "all the", "all", "der", True)
WHICH = Determiner("which", "which", "welch", "der", True)
A = Determiner("a", "", "ein", "ein", False)
NO_ARTICLE = Determiner("", "", "", "bare", False)
MANY = Determiner("", "many", "viel", "strong", False)
SOME = Determiner("", "some", "einig", "strong", False)
HOW_MANY = Determiner("", "how many", "wie viel", "strong", False)
POSSESSIVES = [
    Determiner(english, english, german, "ein", True)
    for english, german in _counted("my mein  your dein  his sein  her ihr  our unser  their ihr")
]
NUMBERS, TENS = (
    [Determiner("", english, german, "bare", False) for english, german in _counted(_tables()[table][0])]
    for table in ("numbers", "tens")
)

MODALS = [
    Modal("can", "aux", Conjugation("kann", "kannst", "kann", "können")),
    Modal("could", "aux", Conjugation("konnte", "konntest", "konnte", "konnten")),
    Modal("must", "aux", Conjugation("muss", "musst", "muss", "müssen")),
    Modal("should", "aux", Conjugation("sollte", "solltest", "sollte", "sollten")),
    Modal("would like to", "aux", Conjugation("möchte", "möchtest", "möchte", "möchten")),
    Modal("wants to", "do", Conjugation("will", "willst", "will", "wollen")),
    Modal("wanted to", "did", Conjugation("wollte", "wolltest", "wollte", "wollten")),
    Modal("has to", "do", Conjugation("muss", "musst", "muss", "müssen")),
    Modal("had to", "did", Conjugation("musste", "musstest", "musste", "mussten")),
    Modal("is allowed to", "be", Conjugation("darf", "darfst", "darf", "dürfen")),
]

CONJUNCTIONS = {
    "because": "weil",
    "although": "obwohl",
    "if": "wenn",
    "when": "als",  # always with the past
    "while": "während",
    "before": "bevor",
    "that": "dass",
    "whether": "ob",
    "and": "und",
    "but": "aber",
}
