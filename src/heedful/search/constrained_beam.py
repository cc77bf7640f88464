"""The candidates of sentences with lexical constraints: dynamic beam allocation (Post and Vilar, 2018).

Beam search asks for the candidates of a step here if a sentence of its batch has phrases. A hypothesis ends only when
it contains all phrases of its sentence. If its most probable token is eos before that, it is extended by the phrases
alone, or dropped if another hypothesis has them: it would go on past the end of the translation. If only the phrases
fit before the limit, it is extended by them alone, too. Legend as in `beam`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.search.lexical_constraints import Banked, LexicalConstraint, PhraseState, share_beam
from heedful.search.top import top_k


class Extension(NamedTuple):
    """A row of a sentence extended by one token; better ones are smaller: by score, then by row, then by id."""

    negative_score: float
    row: int  # among the rows of its sentence
    id: int
    log_prob: float


class SearchProgress(NamedTuple):
    """How far the search of one sentence has come."""

    in_prefix: bool  # whether the next token is given
    tokens_left: int  # up to the limit
    finished: int  # hypotheses
    best: tuple[float, ...]  # scores of the n best of them
    penalties: tuple[float, float]  # length penalty of this step, and of the longest output


class PhraseBeams:
    """The phrase state of every row of the sentences with phrases."""

    def __init__(self, constraints: Sequence[LexicalConstraint | None], eos_id: int) -> None:
        self.eos_id = eos_id
        self.constraints = list(constraints)  # of the A sentences still searched
        self.states = [[PhraseState()] for _ in constraints]
        self.finished = [False] * len(self.constraints)  # whether a hypothesis has ended, with all phrases

    def choose(
        self, place: int, score: Tensor, log_probs: Tensor, beam: int, progress: SearchProgress
    ) -> tuple[list[Extension], int]:
        """(w,), (w, V) of one sentence -> the extensions that end it, the W that continue; how many end."""
        constraint = self.constraints[place]
        assert constraint is not None
        states = self.states[place] = self._closing(constraint, self.states[place], log_probs)
        rest = any(map(constraint.is_complete, states)) or self.finished[place]
        rows = [
            row for row, state in enumerate(states) if constraint.is_complete(state) or not (state.closing and rest)
        ]
        extensions = sorted(self._extensions(constraint, states, score, log_probs, beam, rows, progress))
        after = [constraint.next(states[extension.row], extension.id) for extension in extensions]
        ending, banked, complete = [], [], 0
        for extension, state in zip(extensions, after, strict=True):
            if extension.id != self.eos_id:
                banked.append(Banked(constraint.bank(state), extension))
            elif complete < beam:
                ending.append(extension)
            complete += constraint.is_complete(state)
        self.finished[place] |= bool(ending)
        banked = self._hopeful(constraint, banked, ending, progress, beam)
        return ending + share_beam(banked, beam, constraint.filled), len(ending)

    def _hopeful(
        self,
        constraint: LexicalConstraint,
        banked: list[Banked[Extension]],
        ending: Sequence[Extension],
        progress: SearchProgress,
        beam: int,
    ) -> list[Banked[Extension]]:
        """Those with all phrases, and those that can enter the n best, by the rule of `FinishedHypotheses.done`."""
        now, longest = progress.penalties
        scores = [*progress.best, *(-extension.negative_score / now for extension in ending)]
        worst = sorted(scores, reverse=True)[len(progress.best) - 1]
        enough = progress.finished + len(ending) >= min(constraint.filled or beam, beam)
        all_met = constraint.bank(PhraseState(met=(1 << len(constraint.phrases)) - 1))
        return [
            entry
            for entry in banked
            if entry.bank >= all_met or -entry.candidate.negative_score / (now if enough else longest) > worst
        ]

    def _closing(
        self, constraint: LexicalConstraint, states: Sequence[PhraseState], log_probs: Tensor
    ) -> list[PhraseState]:
        """The states; those whose most probable token is eos while a phrase is missing are closing."""
        ends = (top_k(log_probs, 1)[1][:, 0] == self.eos_id).tolist()
        return [
            state._replace(closing=True) if end and not constraint.is_complete(state) else state
            for state, end in zip(states, ends, strict=True)
        ]

    def _extensions(
        self,
        constraint: LexicalConstraint,
        states: Sequence[PhraseState],
        score: Tensor,
        log_probs: Tensor,
        beam: int,
        rows: Sequence[int],
        progress: SearchProgress,
    ) -> list[Extension]:
        extensions = []
        for row in rows:
            state, total = states[row], float(score[row])
            wanted = constraint.wanted(state)
            count = 2 * beam + len(constraint.reserved) + len(wanted)
            best = top_k(log_probs[row : row + 1], count)[1][0].tolist()
            at_limit = not progress.in_prefix and progress.tokens_left <= constraint.missing(state) + 1
            only_phrases = state.closing or at_limit
            others = [token for token in best if token not in wanted and not constraint.forbids(state, token)]
            if not constraint.is_complete(state):
                others = [] if only_phrases else [token for token in others if token != self.eos_id]
            values = log_probs[row, torch.tensor(wanted + others, dtype=torch.long)].tolist()
            for token, log_prob in zip(wanted + others, values, strict=True):
                if log_prob > -torch.inf and total > -torch.inf:
                    extensions.append(Extension(-(total + log_prob), row, token, log_prob))
        return extensions

    def advance(self, parents: Tensor, ids: Tensor, stay: Tensor) -> None:
        """(A, W) rows among all, (A, W) the ids that follow them, (A,) the sentences that stay."""
        width, stays = len(self.states[0]) if self.states else 1, stay.tolist()
        followed = zip(self.constraints, self.states, (parents % width).tolist(), ids.tolist(), strict=True)
        states = [
            []
            if constraint is None
            else [constraint.next(old[row], token) for row, token in zip(rows, new, strict=True)]
            for constraint, old, rows, new in followed
        ]
        self.states = [
            sentence_states or [PhraseState()] * ids.size(1)
            for sentence_states, keep in zip(states, stays, strict=True)
            if keep
        ]
        self.constraints = [constraint for constraint, keep in zip(self.constraints, stays, strict=True) if keep]
        self.finished = [is_finished for is_finished, keep in zip(self.finished, stays, strict=True) if keep]
