"""What a sentence says before it is said: the structures that `english` and `german` both put into words.

Rendering gives tokens, and every token carries *roles*: names of the parts of the structure it expresses, such as
`subject.noun`. Two words are translations of each other exactly when they share a role, so the true alignment needs
no guessing.
"""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from heedful.demo.lexicon import Adjective, Determiner, Modal, Name, Noun, Phrase, Verb

Person = Literal["ich", "du", "er", "wir", "sie"]
Case = Literal["nom", "acc", "dat", "gen"]
Tense = Literal["present", "progressive", "past", "past progressive", "perfect", "future"]


class Token(NamedTuple):
    text: str
    roles: tuple[str, ...] = ()


def token(text: str, *roles: str) -> Token:
    return Token(text, roles)


@dataclass(frozen=True)
class Pronoun:
    english: str
    english_object: str
    nom: str
    acc: str
    dat: str
    person: Person


I = Pronoun("I", "me", "ich", "mich", "mir", "ich")  # noqa: E741
YOU = Pronoun("you", "you", "du", "dich", "dir", "du")
HE = Pronoun("he", "him", "er", "ihn", "ihm", "er")
SHE = Pronoun("she", "her", "sie", "sie", "ihr", "er")
IT = Pronoun("it", "it", "es", "es", "ihm", "er")  # only the subject of weather: elsewhere its gender is unknown
WE = Pronoun("we", "us", "wir", "uns", "uns", "wir")
THEY = Pronoun("they", "them", "sie", "sie", "ihnen", "sie")
PRONOUNS = (I, YOU, HE, SHE, WE, THEY)
THERE = Pronoun("there", "there", "es", "es", "", "er")  # there is: es gibt
WHO = Pronoun("who", "who", "wer", "wen", "wem", "er")
WHAT = Pronoun("what", "what", "was", "was", "", "er")


@dataclass(frozen=True)
class NounPhrase:
    noun: Noun
    determiner: Determiner
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    owner: "Name | NounPhrase | None" = None  # takes the place of the determiner in English
    relative: "Clause | None" = None  # a clause in which one part is a `Gap`


@dataclass(frozen=True)
class Both:
    """Two people joined by `and`."""

    left: Name
    right: Name


@dataclass(frozen=True)
class Gap:
    """The part of a relative clause that its relative pronoun stands for."""

    head: NounPhrase


Nominal = Pronoun | Name | NounPhrase | Both | Gap


@dataclass(frozen=True)
class Place:
    """A preposition with a noun phrase; German chooses the case."""

    english: str
    german: str
    case: Case
    inner: Nominal


@dataclass(frozen=True)
class Comparison:
    """older than X, or as old as X."""

    adjective: Adjective
    equal: bool
    standard: Nominal


@dataclass(frozen=True)
class Degree:
    """how old"""

    adjective: Adjective


Predicate = Adjective | Comparison | Degree | NounPhrase | tuple[Adjective, Adjective]


@dataclass(frozen=True)
class Clause:
    subject: Nominal
    verb: Verb
    tense: Tense = "present"
    modal: Modal | None = None
    negated: bool = False
    recipient: Nominal | None = None
    object: Nominal | None = None
    predicate: Predicate | None = None
    time: Phrase | None = None
    time_first: bool = False
    frequency: Phrase | None = None  # often, never, already: before the verb in English
    gladly: bool = False  # likes to do it: tut es gern
    manner: Phrase | Place | None = None
    place: Phrase | Place | None = None
    reason: Phrase | None = None  # why
    complement: "Linked | None" = None


@dataclass(frozen=True)
class Linked:
    """A clause behind a conjunction; `link` is empty for indirect questions and `to` for infinitives."""

    link: str
    clause: Clause


@dataclass(frozen=True)
class Sentence:
    clause: Clause
    mood: Literal["statement", "question", "command"] = "statement"
    linked: Linked | None = None
    linked_first: bool = False
    second: tuple[str, Clause] | None = None  # another main clause behind and/but


def person(nominal: Nominal) -> Person:
    match nominal:
        case Pronoun():
            return nominal.person
        case Both() | NounPhrase(plural=True) | Gap(head=NounPhrase(plural=True)):
            return "sie"
        case _:
            return "er"


def is_question(part: object) -> bool:
    match part:
        case Pronoun():
            return part in (WHO, WHAT)
        case NounPhrase():
            return part.determiner.english_plural in ("which", "how many")
        case Phrase():
            return "question" in part.kinds
        case Degree():
            return True
        case _:
            return False


SLOTS = ("subject", "recipient", "object", "predicate", "time", "manner", "place", "reason")


def front(clause: Clause) -> str:
    """The slot that stands first: a question word or relative pronoun, else a fronted time, else the subject."""
    for slot in SLOTS:
        part = getattr(clause, slot)
        if part is not None and (isinstance(part, Gap) or is_question(part)):
            return slot
    return "time" if clause.time_first else "subject"


WORD = re.compile(r"\w+(?:'\w+)*|[^\w\s]")


def words(text: str) -> list[str]:
    """Words and punctuation marks, each by itself; an apostrophe inside a word (o'clock, Anna's) stays in it."""
    return WORD.findall(text)


def write(tokens: list[Token]) -> str:
    """Join tokens as ordinary text: punctuation hangs on the word before it, the first letter is a capital."""
    text = "".join(t.text if t.text in ".,?!" else " " + t.text for t in tokens).strip()
    return text[0].upper() + text[1:]


def align(source: list[Token], target: list[Token]) -> frozenset[tuple[int, int]]:
    """The pairs of positions whose tokens share a role."""
    places: dict[str, list[int]] = {}
    for i, word in enumerate(source):
        for role in word.roles:
            places.setdefault(role, []).append(i)
    return frozenset((i, j) for j, word in enumerate(target) for role in word.roles for i in places.get(role, ()))
