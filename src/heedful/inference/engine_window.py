"""The context window of a GPT in the native engine. Imports no torch.

`context_window.ContextWindow` is the same in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heedful.native import Engine
from heedful.native.decoder_session import DecoderSession


@dataclass
class WindowRow:
    """The tokens that one row attends to, and where the engine holds their keys and values."""

    ids: list[int]
    sentence: int = -1  # -1 until the tokens are read
    node: int = -1  # of the last token that was read

    def copy(self) -> WindowRow:
        return WindowRow(list(self.ids), self.sentence, self.node)


def newest(ids: Sequence[int], longest: int) -> list[int]:
    """The tokens that stay in a window: it slides by a quarter of its length, as all that stays is computed again."""
    over, slide = len(ids) - longest, max(1, longest // 4)
    return list(ids if over <= 0 else ids[-(-over // slide) * slide :])


class EngineWindow:
    """Rows of any length share a batch; they are added and removed at any time.

    Rows with the same prompt share its keys and values.
    """

    def __init__(self, engine: Engine, threads: int) -> None:
        self.session, self.longest = DecoderSession(engine, threads), engine.config.max_length
        self.state: list[WindowRow] = []
        self.sentences: set[int] = set()  # in the session

    @property
    def rows(self) -> list[list[int]]:
        """The ids in the window of each row."""
        return [row.ids for row in self.state]

    def add(self, ids: Sequence[int]) -> None:
        """One more row, below the others."""
        self.state.append(WindowRow(newest(ids, self.longest)))

    def next(self) -> npt.NDArray[np.float32]:
        """-> (R, V) log-probabilities of the token that comes next."""
        step = _Step()
        readers: dict[tuple[int, ...], int] = {}  # of each prompt that is read: its place in the output
        output = []  # of each row: its place in the output
        for row in self.state:
            if row.sentence >= 0:
                output.append(step.add(row.sentence, [row.node], row.ids[-1:]))
                continue
            prompt = tuple(row.ids)
            if prompt not in readers:
                number = int(self.session.add([()])[0])
                self.sentences.add(number)
                readers[prompt] = step.add(number, range(-1, len(prompt) - 1), row.ids)
            output.append(readers[prompt])
        nodes = np.array(step.parents, np.int32)
        log_probs = self.session.step(step.sentences, nodes, step.ids, np.array(step.wanted))
        computed = np.flatnonzero(step.wanted)
        for row, place in zip(self.state, output, strict=True):
            row.sentence, row.node = step.sentences[computed[place]], int(nodes[computed[place]])
        return log_probs[output]

    def append(self, ids: Sequence[int]) -> None:
        """Append (R,) ids, one to each row."""
        for row, token in zip(self.state, ids, strict=True):
            row.ids.append(token)
            if len(row.ids) > self.longest:
                row.ids, row.sentence = newest(row.ids, self.longest), -1
        self._drop_unused()

    def select(self, rows: Sequence[int]) -> None:
        """(R',): new row r continues old row rows[r]."""
        self.state = [self.state[row].copy() for row in rows]
        self._drop_unused()

    def _drop_unused(self) -> None:
        used = {row.sentence for row in self.state}
        for number in self.sentences - used:
            self.session.drop(number)
        self.sentences &= used


class _Step:
    """The rows of one decoder step."""

    def __init__(self) -> None:
        self.sentences, self.parents, self.ids = list[int](), list[int](), list[int]()
        self.wanted: list[bool] = []
        self.count = 0  # rows whose log-probabilities are wanted

    def add(self, sentence: int, parents: Iterable[int], ids: Sequence[int]) -> int:
        """Tokens of one sentence, each after its parent -> the place of the last one's log-probabilities."""
        self.sentences += [sentence] * len(ids)
        self.parents += parents
        self.ids += ids
        self.wanted += [False] * (len(ids) - 1) + [True]
        self.count += 1
        return self.count - 1
