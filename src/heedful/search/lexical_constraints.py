"""Lexical constraints: phrases that an output must contain (Post and Vilar, 2018: dynamic beam allocation).

A phrase has one form or more, each a sequence of token ids. The state of a hypothesis says which phrases it contains
and how far the next one has come; hypotheses that have come equally far form a bank, and banks share the beam. The
native engine has the same rules in csrc/phrases.h. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from heedful.errors import SettingError

MAX_PHRASES = 64  # of one sentence; the engine keeps a bit for each
MAX_BANK_ROWS = 8  # of a beam that is wider than asked for, so that every bank has a row
NO_PHRASE = -1

C = TypeVar("C")


class RequiredPhrase(NamedTuple):
    """Alternative token sequences, one of which the output must contain."""

    forms: tuple[tuple[int, ...], ...]
    whole_words: bool = False  # no token that continues a word may follow
    after: int = NO_PHRASE  # number of the phrase that must precede it


class PhraseState(NamedTuple):
    """What a hypothesis contains: the phrases as a bit set, the node of the trie that its end has reached."""

    met: int = 0
    node: int = 0  # the root if no phrase has begun
    boundary: bool = False  # the last token completed a phrase of whole words
    closing: bool = False  # eos was the most probable token: only the missing phrases follow


@dataclass
class TrieNode:
    """A beginning of forms; bit sets of the phrases with a form that ends here, and below."""

    children: dict[int, int] = field(default_factory=dict)  # token -> node
    ends: int = 0
    deeper: int = 0
    depth: int = 0
    suffix: int = 0  # the node of the longest proper suffix (Aho and Corasick, 1975)


@dataclass(frozen=True, eq=False)
class LexicalConstraint:
    """The phrases of one sentence.

    Tokens in `reserved` may occur only within a phrase. `continues[id]` is 1 for tokens that continue a word. `filled`
    rows of the beam have the next best of the banks too, or all rows; the others have the best of each bank alone.
    """

    phrases: tuple[RequiredPhrase, ...]
    reserved: tuple[int, ...] = ()
    continues: npt.NDArray[np.uint8] | None = None
    filled: int | None = None

    def __post_init__(self) -> None:
        if len(self.phrases) > MAX_PHRASES:
            raise SettingError(f"a sentence has {len(self.phrases)} phrases; {MAX_PHRASES} are possible at most.")
        if not all(phrase.forms and all(phrase.forms) for phrase in self.phrases):
            raise SettingError("a phrase has no form, or an empty one; give token ids.")

    @property
    def tokens(self) -> set[int]:
        """Every token of a phrase, and the reserved ones."""
        return {token for phrase in self.phrases for form in phrase.forms for token in form} | set(self.reserved)

    def beam(self, beam: int) -> int:
        """The beam of a constrained search: a row for each token of a phrase, and for each phrase."""
        return max(beam, min(self._longest_form + len(self.phrases) + 1, MAX_BANK_ROWS))

    def flattened(self) -> list[int]:
        """The numbers that the native engine reads."""
        numbers = [self.filled or 0, len(self.reserved), *self.reserved, len(self.phrases)]
        for phrase in self.phrases:
            numbers += [phrase.after, int(phrase.whole_words), len(phrase.forms)]
            for form in phrase.forms:
                numbers += [len(form), *form]
        return numbers

    def is_complete(self, state: PhraseState) -> bool:
        return state.met == (1 << len(self.phrases)) - 1

    def missing(self, state: PhraseState) -> int:
        """The tokens that are missing, with the shortest forms."""
        missing = sum(min(map(len, p.forms)) for number, p in enumerate(self.phrases) if not state.met >> number & 1)
        return missing - self._trie[state.node].depth

    def bank(self, state: PhraseState) -> int:
        """A number for each number of phrases and of tokens of the next one."""
        return state.met.bit_count() * (self._longest_form + 1) + self._trie[state.node].depth

    @cached_property
    def _longest_form(self) -> int:
        return max(len(form) for phrase in self.phrases for form in phrase.forms)

    def next(self, state: PhraseState, token: int) -> PhraseState:
        """The state after one more token."""
        missing = self._open(state.met)
        node = self._longest(state.node, token, missing)
        if not node:
            return PhraseState(state.met, closing=state.closing)
        ending = self._trie[node].ends & missing
        if not ending:
            return PhraseState(state.met, node, closing=state.closing)
        first = ending & -ending
        met = state.met | first
        goes_on = self._trie[node].deeper & self._open(met)
        whole = self.phrases[first.bit_length() - 1].whole_words
        return PhraseState(met, node if goes_on else 0, whole, state.closing)

    def wanted(self, state: PhraseState) -> list[int]:
        """The tokens that continue the phrase that has begun, or begin one that is missing."""
        missing = self._open(state.met)
        children = self._trie[state.node].children
        return [token for token in children if self._child(state.node, token, missing)]

    def forbids(self, state: PhraseState, token: int) -> bool:
        """Whether a token that is not wanted must not follow."""
        continued = state.boundary and self.continues is not None and bool(self.continues[token])
        return continued or token in self.reserved

    @cached_property
    def _trie(self) -> list[TrieNode]:
        nodes = [TrieNode()]
        for number, phrase in enumerate(self.phrases):
            for form in phrase.forms:
                at = 0
                for token in form:
                    nodes[at].deeper |= 1 << number
                    if token not in nodes[at].children:
                        nodes[at].children[token] = len(nodes)
                        nodes.append(TrieNode(depth=nodes[at].depth + 1))
                    at = nodes[at].children[token]
                nodes[at].ends |= 1 << number
        queue = [0]
        for parent in queue:
            for token, child in nodes[parent].children.items():
                queue.append(child)
                at = parent
                while at and not nodes[child].suffix:
                    at = nodes[at].suffix
                    nodes[child].suffix = nodes[at].children.get(token, 0)
        return nodes

    def _longest(self, node: int, token: int, missing: int) -> int:
        """The node of the longest beginning of a missing phrase that ends with this token; 0 if there is none."""
        child = self._child(node, token, missing)
        while not child and node:
            node = self._trie[node].suffix
            child = self._child(node, token, missing)
        return child

    def _child(self, node: int, token: int, missing: int) -> int:
        """The child through which a missing phrase leads; 0 if there is none."""
        child = self._trie[node].children.get(token, 0)
        return child if (self._trie[child].ends | self._trie[child].deeper) & missing else 0

    def _open(self, met: int) -> int:
        """Phrases that are missing and that nothing has to precede any more."""
        return sum(
            1 << number
            for number, phrase in enumerate(self.phrases)
            if not met >> number & 1 and (phrase.after == NO_PHRASE or met >> phrase.after & 1)
        )


class Banked(NamedTuple, Generic[C]):
    """A candidate and its bank."""

    bank: int
    candidate: C


def share_beam(candidates: Iterable[Banked[C]], beam: int, filled: int | None = None) -> list[C]:
    """The best candidate of every bank, then the second best of every bank, and so on, until `filled` rows have one.

    If there are more banks than rows of the beam, the first one and the last ones have a row. The candidates are given
    best first, and so are those that are returned.
    """
    ranks: dict[int, int] = {}
    ranked: list[tuple[int, int, C]] = []  # rank in its bank, rank among all
    heads: list[tuple[int, tuple[int, int, C]]] = []  # the best of each bank
    for place, (bank, candidate) in enumerate(candidates):
        ranks[bank] = ranks.get(bank, -1) + 1
        ranked.append((ranks[bank], place, candidate))
        if not ranks[bank]:
            heads.append((bank, ranked[-1]))
    heads.sort(key=lambda head: head[0])
    if len(heads) > beam:
        chosen = [head for _, head in [heads[0], *heads[len(heads) - beam + 1 :]]]
    else:
        chosen = sorted(ranked, key=lambda entry: entry[:2])[: max(len(heads), min(filled or beam, beam))]
    return [candidate for _, _, candidate in sorted(chosen, key=lambda entry: entry[1])]
