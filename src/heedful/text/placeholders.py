"""Placeholders of a text, which a translation must keep: variables, tags, entities, URLs and e-mail addresses.

A template is the text with one slot character in place of each placeholder. Training pairs with the same placeholders
on both sides are masked with slots, which a vocabulary then has as tokens of their own. Knows no ids and no models.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SLOTS = 12  # slot characters in a vocabulary, and placeholders of a sentence that it can carry
MOST = 4000  # placeholders of a text that are found
FIRST_SLOT = 0x10F000  # in Private Use Area B, which no text uses
SLOT = re.compile(f"[{chr(FIRST_SLOT)}-{chr(FIRST_SLOT + MOST - 1)}]")
VOCABULARY_SLOTS = [chr(FIRST_SLOT + number) for number in range(SLOTS)]
NO_PARTNER = -1

_URL_CHARACTER = r"[^\s<>\"“”«»‹›\u3000-\u303f\u3040-\u30ff\u3400-\u9fff\uff00-\uffef]"
_TAG_NAME = r"[A-Za-z][\w:.-]*+"
_ATTRIBUTE = r"\s++[\w:@.-]++\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'<>=]++)"
PLACEHOLDER = re.compile(
    rf"""
    (?P<tag> <(?P<end>/)?(?P<name>{_TAG_NAME})(?:{_ATTRIBUTE})*\s*+(?P<empty>/)?> | <!--.{{0,500}}?--> )
  | (?:https?|ftps?|file)://{_URL_CHARACTER}*(?<![.,;:!?)\]}}'’])
  | (?<![\w.@])www\.[\w-]+\.{_URL_CHARACTER}*(?<![.,;:!?)\]}}'’])
  | (?<![\w.+-])[A-Za-z0-9_][\w.+-]*@[\w-]+(?:\.[\w-]+)+(?<![-])
  | \{{\{{.{{0,200}}?\}}\}} | \{{%.{{0,200}}?%\}}                                   # of templates
  | [$\#%]?\{{[^{{}}\s]*\}} | \{{\s*\w+(?:\s*,\s*\w+)+\s*\}}        # of str.format, shells, Ruby, ICU
  | %\(\w+\)[-+\#0]*\d*(?:\.\d+)?[hlL]*[diouxXeEfFgGcrsa]           # %(n)d
  | (?<![\d%])%(?:\d+\$)?[-+\#0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[qjztL])?[diouxXeEfFgGcrsaAp@](?![A-Za-z]{{3}})
  | (?<![\d%])%L?\d{{1,2}}(?!\d) | (?<!\d\ )(?<![\d%])%n\b | %%     # %1 and %n of Qt, %%
  | (?<![\w$])\$[A-Za-z_]\w*                                        # $var
  | &(?:[A-Za-z][A-Za-z0-9]{{1,31}}|\#\d{{1,7}}|\#[xX][0-9A-Fa-f]{{1,6}});
  | {SLOT.pattern}
    """,
    re.VERBOSE | re.DOTALL,
)
HINT = re.compile(rf"[{{%$<&@]|://|www\.|{SLOT.pattern}")  # every placeholder has one of these
GLUE = re.compile(r"[^\w\s]{0,3}")  # between placeholders that stay together, as in {a}/{b}
NUMBER = re.compile(r"\d+(?:[.,'’\u00a0\u202f ]\d+)*")
ENCLOSED = re.compile(rf"(?:(\()|(\[)|([\"'„“‘«‹]))({SLOT.pattern})(?(1)\)|(?(2)\]|[\"'“”’»›]))")
EMPTY_ELEMENTS = {"br", "hr", "img", "input", "wbr"}


@dataclass(frozen=True)
class Placeholder:
    """A span of the text that is kept; a closing tag has the number of its opening tag as its partner."""

    start: int
    end: int
    partner: int = NO_PARTNER


def find_placeholders(text: str) -> list[Placeholder]:
    """The placeholders of a text, in order.

    Those that only punctuation separates, as in `{a}/{b}` or `<b>{name}</b>`, are one placeholder.
    """
    if not HINT.search(text):
        return []
    matches = [match for match, _ in zip(PLACEHOLDER.finditer(text), range(MOST), strict=False)]
    partners = _partners(matches)
    runs: list[list[int]] = []
    for number, match in enumerate(matches):
        if runs and GLUE.fullmatch(text, matches[runs[-1][-1]].end(), match.start()):
            runs[-1].append(number)
        else:
            runs.append([number])
    spans: list[list[int]] = []  # numbers of the matches of each placeholder
    for run in runs:
        closed = all(partners.get(number, number) in run for number in run)
        spans += [run] if closed else [[number] for number in run]
    opening = {number: place for place, span in enumerate(spans) for number in span if len(span) == 1}
    placeholders = []
    for span in spans:
        partner = partners.get(span[0], NO_PARTNER) if len(span) == 1 else NO_PARTNER
        closes = partner != NO_PARTNER and partner < span[0]
        placeholders.append(
            Placeholder(matches[span[0]].start(), matches[span[-1]].end(), opening[partner] if closes else NO_PARTNER)
        )
    return placeholders


def _partners(matches: Sequence[re.Match[str]]) -> dict[int, int]:
    """The number of the other tag of each pair of tags; tags without a partner are missing."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    for number, match in enumerate(matches):
        name = match["name"]
        if not name or match["empty"] or name.lower() in EMPTY_ELEMENTS:
            continue
        if not match["end"]:
            opened.append(number)
            continue
        place = next((p for p in reversed(range(len(opened))) if matches[opened[p]]["name"] == name), None)
        if place is not None:
            partners |= {number: opened[place], opened[place]: number}
            del opened[place:]
    return partners


@dataclass(frozen=True)
class Template:
    """A text with slot characters, the placeholders that they stand for, and the partners of closing tags."""

    text: str
    originals: tuple[str, ...] = ()
    partners: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str) -> Template:
        placeholders = find_placeholders(text)
        if not placeholders:
            return cls(text)
        originals = tuple(text[placeholder.start : placeholder.end] for placeholder in placeholders)
        return cls(
            _replace(text, placeholders, range(len(placeholders))),
            originals,
            tuple(placeholder.partner for placeholder in placeholders),
        )

    def restore(self, text: str) -> str:
        """The text with the placeholder of each slot character in its place."""
        return SLOT.sub(lambda match: self.originals[ord(match[0]) - FIRST_SLOT], text)

    def mask(self, text: str) -> str:
        """Another text, such as a forced prefix, with the slots of the placeholders that it has in common."""
        slots: dict[str, list[int]] = {}
        for number, original in enumerate(self.originals):
            slots.setdefault(original, []).append(number)
        placeholders = find_placeholders(text)
        numbers = [
            (slots.get(text[placeholder.start : placeholder.end]) or [NO_PARTNER]).pop(0)
            for placeholder in placeholders
        ]
        common = [
            (placeholder, number)
            for placeholder, number in zip(placeholders, numbers, strict=True)
            if number != NO_PARTNER
        ]
        return _replace(text, [placeholder for placeholder, _ in common], [number for _, number in common])

    def part(self, text: str) -> Template:
        """The template of a part of the text; its slots are numbered from 0."""
        numbers = [ord(match[0]) - FIRST_SLOT for match in SLOT.finditer(text)]
        new_numbers = {number: place for place, number in enumerate(numbers)}
        renumbered = SLOT.sub(lambda match: chr(FIRST_SLOT + new_numbers[ord(match[0]) - FIRST_SLOT]), text)
        partners = (new_numbers.get(self.partners[number], NO_PARTNER) for number in numbers)
        return Template(renumbered, tuple(self.originals[number] for number in numbers), tuple(partners))

    def enclosed(self) -> Template:
        """The template whose placeholders include brackets or quotation marks directly around them, as in `({x})`."""
        originals = list(self.originals)
        closing = [number for number, partner in enumerate(self.partners) if partner != NO_PARTNER]
        tags = {*closing, *(self.partners[number] for number in closing)}

        def include(match: re.Match[str]) -> str:
            number = ord(match[4]) - FIRST_SLOT
            if number in tags:
                return match[0]
            originals[number] = match[0].replace(match[4], originals[number])
            return match[4]

        return Template(ENCLOSED.sub(include, self.text), tuple(originals), self.partners)

    def is_nested(self, order: Iterable[int]) -> bool:
        """Whether all slots occur once and tags are nested, if the slots are in this order."""
        opened: list[int] = []
        seen: set[int] = set()
        opening = set(self.partners) - {NO_PARTNER}
        for number in order:
            seen.add(number)
            if number in opening:
                opened.append(number)
            elif self.partners[number] != NO_PARTNER and (not opened or opened.pop() != self.partners[number]):
                return False
        return seen == set(range(len(self.originals))) and not opened

    @property
    def has_words(self) -> bool:
        """Whether anything but placeholders and punctuation is left to translate."""
        return any(character.isalnum() for character in SLOT.sub("", self.text))


def mask_pair(source: str, target: str) -> tuple[str, str] | None:
    """A training pair with slots in place of its placeholders; None if both sides do not have the same ones.

    The numbers of the slots differ from pair to pair, so that all slots of the vocabulary are learned.
    """
    sides = [(text, find_placeholders(text)) for text in (source, target)]
    originals = [
        [text[placeholder.start : placeholder.end] for placeholder in placeholders] for text, placeholders in sides
    ]
    if not 0 < len(originals[0]) <= SLOTS or Counter(originals[0]) != Counter(originals[1]):
        return None
    first = zlib.crc32(source.encode("utf-8", "replace")) % SLOTS
    slots: dict[str, list[int]] = {}
    for number, original in enumerate(originals[0]):
        slots.setdefault(original, []).append((first + number) % SLOTS)
    numbers = [slots[original].pop(0) for original in originals[1]]
    order = [(first + number) % SLOTS for number in range(len(numbers))]
    return _replace(source, sides[0][1], order), _replace(target, sides[1][1], numbers)


def _replace(text: str, spans: Sequence[Placeholder], slots: Sequence[int]) -> str:
    parts, at = [], 0
    for span, slot in zip(spans, slots, strict=True):
        parts += [text[at : span.start], chr(FIRST_SLOT + slot)]
        at = span.end
    return "".join((*parts, text[at:]))


def differing_numbers(source: str, target: str) -> list[str]:
    """The numbers of the source that its translation lacks; separators within a number may differ."""
    missing = Counter(map(_digits, NUMBER.findall(source))) - Counter(map(_digits, NUMBER.findall(target)))
    wanted = list(missing.elements())
    written = {_digits(number): number for number in NUMBER.findall(source)}
    return [written[digits] for digits in wanted]


def _digits(number: str) -> str:
    return "".join(str(unicodedata.decimal(character)) for character in number if character.isdecimal())
