"""Placeholders of a text to translate: what the model reads instead, and how its translation gets them back.

A model with slots in its vocabulary reads and writes them; a lexical constraint makes every slot occur exactly once.
Any other model reads the text without placeholders, and the attention of its translation tells where each belongs. In
both cases every placeholder occurs exactly once and tags are nested, whatever the model does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.search import RequiredPhrase
from heedful.text.edits import Edit, apply_edits, moved, moved_words
from heedful.text.placeholders import FIRST_SLOT, NO_PARTNER, SLOT, SLOTS, Template
from heedful.text.words import SPACELESS, Span

OPENING_MARKS = frozenset("([{„“‘«‹¿¡/-")
CLOSING_MARKS = frozenset(".,;:!?)]}»”’…。，；：！？）、")
SPACELESS_CHARACTER = re.compile(f"[{SPACELESS}]")


@dataclass(frozen=True)
class ProtectedText:
    """A text, its template, and the text that the model reads: with slots or without them."""

    template: Template
    text: str
    edits: tuple[Edit, ...] = ()  # that turned the text of the template into `text`

    @classmethod
    def of(cls, template: Template, slots: bool) -> ProtectedText:
        """`slots`: the model reads slots, if there are not too many."""
        if slots and len(template.originals) <= SLOTS:
            return cls(template, template.text)
        template = template.enclosed()
        edits = tuple(_removals(template.text))
        return cls(template, apply_edits(template.text, edits), edits)

    @property
    def needs_alignment(self) -> bool:
        """Whether placeholders are placed by attention."""
        return bool(self.edits) and self.template.has_words

    def constraint(self, ids: Sequence[int]) -> list[RequiredPhrase]:
        """Every slot exactly once, a closing tag after its opening tag; none if the model reads no slots."""
        if self.edits:
            return []
        return [
            RequiredPhrase(((ids[number],),), after=partner) for number, partner in enumerate(self.template.partners)
        ]

    def mask_prefix(self, prefix: str) -> str:
        """A forced prefix as the model writes it."""
        masked = self.template.mask(prefix)
        return SLOT.sub("", masked) if self.edits else masked

    def original(self) -> str:
        return self.template.restore(self.template.text)

    def source_words(self) -> list[int]:
        """For every word that the model reads, its number in the original text."""
        words = moved_words(self.text, _inverse(self.edits, self.template.text), self.template.text)
        restoring = _restoring(self.template, self.template.text)
        originals = moved_words(self.template.text, restoring, self.original())
        return [originals[word] if word < len(originals) else 0 for word in words]

    def restore(self, text: str, positions: Sequence[int] | None = None) -> tuple[str, list[int]]:
        """The translation with its placeholders, and for every word of `text` its number there.

        `positions` are the offsets in `text` at which the placeholders belong, if the model reads no slots.
        """
        template = self.template
        if positions is None:
            order = [ord(match[0]) - FIRST_SLOT for match in SLOT.finditer(text)]
            if sorted(order) == list(range(len(template.originals))) and template.is_nested(order):
                restoring = _restoring(template, text)
                restored = apply_edits(text, restoring)
                return restored, moved_words(text, restoring, restored)
            return self._rescue(text)
        insertions = self._insertions(text, _nested(template, positions))
        inserted = apply_edits(text, insertions)
        restoring = _restoring(template, inserted)
        restored = apply_edits(inserted, restoring)
        later = moved_words(inserted, restoring, restored)
        words = moved_words(text, insertions, inserted)
        return restored, [later[word] if word < len(later) else max(0, len(later) - 1) for word in words]

    def _rescue(self, text: str) -> tuple[str, list[int]]:
        """A translation with missing, repeated or crossing slots: each slot at its first place, or at the end."""
        removals = tuple(_removals(text))
        first = {
            ord(match[0]) - FIRST_SLOT: moved(match.start(), removals) for match in reversed([*SLOT.finditer(text)])
        }
        clean = apply_edits(text, removals)
        positions = [min(first.get(number, len(clean)), len(clean)) for number in range(len(self.template.originals))]
        restored, _ = self.restore(clean, positions)
        return restored, moved_words(text, [], restored)

    def _insertions(self, text: str, positions: Sequence[int]) -> list[Edit]:
        """The slots at their positions, with the white space that they need; by position, then in the given order."""
        insertions, order = [], _insertion_order(self.template, positions)
        for place, number in enumerate(order):
            at = positions[number]
            slot = chr(FIRST_SLOT + number)
            shared_before = place > 0 and positions[order[place - 1]] == at
            shared_after = place + 1 < len(order) and positions[order[place + 1]] == at
            before = "" if shared_before else self._gap_before(number, text[at - 1 : at] if at else "")
            after = self._gap_after(number, text[at : at + 1])
            if shared_after:
                after = " " if self._between(number, order[place + 1]) else ""
            insertions.append(Edit(at, at, before + slot + after))
        return insertions

    def sides(self, number: int) -> tuple[str, str]:
        """The characters before and after a slot in the template."""
        at = self.template.text.index(chr(FIRST_SLOT + number))
        return self.template.text[at - 1 : at] if at else "", self.template.text[at + 1 : at + 2]

    def _gap_before(self, number: int, left: str) -> str:
        """A space before a slot, unless it touches what it touched before, or a bracket."""
        before = self.sides(number)[0]
        if not left or left.isspace() or left == before or SPACELESS_CHARACTER.match(left):
            return ""
        touched = (before.isalnum() and left.isalnum()) or self._is_closing(number)
        return "" if touched or (left in OPENING_MARKS and not before.isspace()) else " "

    def _gap_after(self, number: int, right: str) -> str:
        after = self.sides(number)[1]
        if not right or right.isspace() or right == after or right in CLOSING_MARKS or SPACELESS_CHARACTER.match(right):
            return ""
        return "" if (after.isalnum() and right.isalnum()) or self._is_opening(number) else " "

    def _between(self, one: int, other: int) -> bool:
        """Whether a space separates two slots that come to stand side by side."""
        return not (self._is_opening(one) or self._is_closing(other))

    def _is_closing(self, number: int) -> bool:
        return self.template.partners[number] != NO_PARTNER

    def _is_opening(self, number: int) -> bool:
        return number in self.template.partners


def _removals(text: str) -> list[Edit]:
    """Edits that remove slots, and the white space that would be doubled or left at an end."""
    edits: list[Edit] = []
    for match in re.finditer(rf"(\s*)(?:{SLOT.pattern}\s*)+", text):
        at_end = match.start() == 0 or match.end() == len(text)
        before_mark = not match[0][-1].isspace() and text[match.end() : match.end() + 1] in CLOSING_MARKS
        blank = " " if re.search(r"\s", match[0]) and not (at_end or before_mark) else ""
        edits.append(Edit(match.start(), match.end(), blank))
    return edits


def _inverse(edits: Sequence[Edit], before: str) -> list[Edit]:
    """The edits that undo others."""
    inverse, shift = [], 0
    for start, end, new in edits:
        inverse.append(Edit(start + shift, start + shift + len(new), before[start:end]))
        shift += len(new) - (end - start)
    return inverse


def _restoring(template: Template, text: str) -> list[Edit]:
    return [
        Edit(match.start(), match.end(), template.originals[ord(match[0]) - FIRST_SLOT])
        for match in SLOT.finditer(text)
    ]


def _insertion_order(template: Template, positions: Sequence[int]) -> list[int]:
    """The placeholders by position; at the same one, tags that close there, inner ones first, and then the others."""

    def key(number: int) -> tuple[int, int, int, int]:
        at, partner = positions[number], template.partners[number]
        if partner != NO_PARTNER and positions[partner] < at:
            return at, 0, -positions[partner], -partner
        return at, 1, 0, number

    return sorted(range(len(positions)), key=key)


def _nested(template: Template, positions: Sequence[int]) -> list[int]:
    """The positions, if tags are nested; otherwise never before that of an earlier placeholder, so that they are."""
    if template.is_nested(_insertion_order(template, positions)):
        return list(positions)
    ascending, least = [], 0
    for position in positions:
        least = max(least, position)
        ascending.append(least)
    return ascending


class PlaceholderPlacer:
    """Finds the position of every placeholder in a translation, from which source token each target token comes."""

    def __init__(
        self, protected: ProtectedText, target: str, source_spans: Sequence[Span], target_spans: Sequence[Span]
    ) -> None:
        self.protected, self.target = protected, target
        self.source_spans, self.target_spans = source_spans, target_spans

    def positions(self, origin: Sequence[int]) -> list[int]:
        """Offsets in the translation, by the source token of each target token."""
        gaps = self._gaps()
        partners = self.protected.template.partners
        offsets = [self._standalone(gap, number, origin) for number, gap in enumerate(gaps)]
        for closing, opening in enumerate(partners):
            if opening != NO_PARTNER:
                offsets[opening], offsets[closing] = self._around(opening, gaps[opening], gaps[closing], origin)
        return offsets

    def _gaps(self) -> list[int]:
        """The offset of every placeholder in the text that the model reads."""
        template, edits = self.protected.template.text, self.protected.edits
        gaps = []
        for match in SLOT.finditer(template):
            inside = next(edit for edit in edits if edit.start <= match.start() < edit.end)
            gaps.append(moved(inside.start, [edit for edit in edits if edit.end <= inside.start]))
        return gaps

    def _standalone(self, gap: int, number: int, origin: Sequence[int]) -> int:
        """Before the translation of the token after the gap, or after that of the token before it."""
        before = [place for place, (_, end) in enumerate(self.source_spans) if end <= gap]
        after = [place for place, (_, end) in enumerate(self.source_spans) if end > gap]
        sides = self.protected.sides(number)
        if sides[0].isalnum() and before:  # attached to the word before it
            return self._end_of([before[-1]], origin, len(self.target))
        for token in after:
            if (start := self._start_of([token], origin)) is not None:
                return start
        for token in reversed(before):
            if (end := self._end_of([token], origin, -1)) >= 0:
                return end
        return len(self.target)

    def _around(self, opening: int, start: int, end: int, origin: Sequence[int]) -> Span:
        """The longest run of target tokens that come from the source tokens between two tags."""
        inside = {place for place in range(len(self.source_spans)) if self._mostly_between(place, start, end)}
        if not inside:
            at = self._standalone(start, opening, origin)
            return at, at
        if len(inside) == len(self.source_spans):
            return 0, len(self.target)
        runs: list[list[int]] = []
        for place, source in enumerate(origin):
            if source not in inside:
                continue
            if runs and runs[-1][-1] == place - 1:
                runs[-1].append(place)
            else:
                runs.append([place])
        if not runs:
            at = self._standalone(start, opening, origin)
            return at, at
        best = max(runs, key=len)
        return self._word_start(self.target_spans[best[0]][0]), self._word_end(self.target_spans[best[-1]][1])

    def _mostly_between(self, place: int, start: int, end: int) -> bool:
        first, last = self.source_spans[place]
        return min(last, end) - max(first, start) > (last - first) / 2

    def _start_of(self, sources: Sequence[int], origin: Sequence[int]) -> int | None:
        places = [place for place, source in enumerate(origin) if source in sources]
        return self._word_start(self.target_spans[places[0]][0]) if places else None

    def _end_of(self, sources: Sequence[int], origin: Sequence[int], otherwise: int) -> int:
        places = [place for place, source in enumerate(origin) if source in sources]
        return self._word_end(self.target_spans[places[-1]][1]) if places else otherwise

    def _word_start(self, at: int) -> int:
        """The start of the word at an offset; white space before a word is not part of it."""
        while at < len(self.target) and self.target[at].isspace():
            at += 1
        while 0 < at < len(self.target) and _joined(self.target[at - 1], self.target[at]):
            at -= 1
        return at

    def _word_end(self, at: int) -> int:
        while 0 < at < len(self.target) and _joined(self.target[at - 1], self.target[at]):
            at += 1
        return at


def _joined(left: str, right: str) -> bool:
    """Whether two characters are parts of one word."""
    return left.isalnum() and right.isalnum() and not SPACELESS_CHARACTER.match(left + right)


def spread_evenly(tokens: int, sources: int) -> list[int]:
    """The source token of each target token of a model without attention: the same order on both sides."""
    return [place * sources // max(1, tokens) for place in range(tokens)]
