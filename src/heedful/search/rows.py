"""The rows of a running search: what beam search and sampling share.

They feed the model, apply the constraints, and keep prefixes and cache aligned when rows are reordered or a sentence
leaves the batch. Which rows are chosen and when a sentence is done is decided elsewhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.errors import HeedfulError
from heedful.search.constraints import ban, compose, force_prefix, min_length, no_repeat, restrict_to_shortlists
from heedful.search.next_token import NextToken
from heedful.search.options import Constraint, SearchOptions


class SearchRows:
    """A sentences, w rows each (one at first), R = A * w rows of equal length t."""

    def __init__(
        self,
        next_token: NextToken,
        source: Tensor,
        source_lengths: Tensor,
        options: SearchOptions,
        sentence: Tensor | None = None,
    ) -> None:
        """`sentence` holds the indices of the sentences to search, in ascending order; all of them if it is None."""
        self.next_token = next_token
        self.constrain = _constraint(next_token, options, len(source))
        self.observer = options.observer
        everyone = torch.arange(len(source), device=source.device)
        self.sentence = everyone if sentence is None else sentence  # (A,) index in the caller's batch
        self.limit = options.limits(source_lengths)[self.sentence]  # (A,)
        self.shortest = int(self.limit.min())
        self.prefix = source.new_empty((len(self.sentence), 0), dtype=torch.long)  # (R, t)
        self.log_probs = source.new_empty((len(self.sentence), 0), dtype=torch.float32)  # (R, t)
        self.last = torch.full_like(self.sentence, next_token.bos_id)  # (R,)
        self.cache = next_token.start(source[self.sentence], source_lengths[self.sentence])

    @property
    def length(self) -> int:
        return self.prefix.size(1)

    def at_limit(self) -> Tensor:
        """-> (A,) sentences whose next token is their last."""
        return self.limit <= self.length + 1

    def step(self) -> Tensor:
        """-> (R, V) log-probabilities of the next token, after the constraints."""
        log_probs = self.next_token.step(self.last, self.cache)
        # a NaN in one logit makes the whole row of a log-softmax NaN: one column shows it
        if log_probs[:, self.next_token.eos_id].isnan().any():
            raise HeedfulError("the model's probabilities are not numbers (NaN); its weights are damaged or overflow.")
        sentence_of_row = self.sentence.unsqueeze(1).expand(-1, len(self.last) // len(self.sentence)).flatten()  # (R,)
        log_probs = self.constrain(log_probs, self.prefix, sentence_of_row)
        if self.observer is not None:
            self.observer.step(sentence_of_row, self.prefix, log_probs)
        return log_probs

    def extended(self, parents: Tensor, ids: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) rows, (N,) their next ids, (N,) log-probabilities of these -> (N, t + 1) ids and log-probabilities."""
        extended_ids = torch.cat((self.prefix[parents], ids.unsqueeze(1)), 1)
        return extended_ids, torch.cat((self.log_probs[parents], log_probs.unsqueeze(1)), 1)

    def grow(self, parents: Tensor, ids: Tensor, log_probs: Tensor) -> None:
        """(A, w) old rows, the ids that follow them and their log-probabilities: all sentences continue."""
        rows = parents.flatten()
        if not self._in_place(rows):
            self.cache.select(rows)
        self._append(rows, ids, log_probs)

    def shrink(self, stay: Tensor, parents: Tensor, ids: Tensor, log_probs: Tensor) -> None:
        """The same, but only the sentences in `stay` (A,) continue; the others leave the batch."""
        sources = stay.nonzero().squeeze(1)
        self.sentence, self.limit = self.sentence[sources], self.limit[sources]
        rows = parents[sources].flatten()
        if len(rows):
            self.shortest = int(self.limit.min())
            self.cache.select(rows, sources)
        self._append(rows, ids[sources], log_probs[sources])

    def _in_place(self, rows: Tensor) -> bool:
        """(R',) -> whether every row continues itself, so that the cache needs no reordering."""
        return torch.equal(rows, torch.arange(len(self.last), device=rows.device))

    def _append(self, rows: Tensor, ids: Tensor, log_probs: Tensor) -> None:
        self.last = ids.flatten()
        self.prefix, self.log_probs = self.extended(rows, self.last, log_probs.flatten())


def _constraint(next_token: NextToken, options: SearchOptions, sentences: int) -> Constraint:
    """All constraints of the options; bos and pad are forbidden, unless they double as eos."""
    options.check(sentences, next_token.vocab_size, {next_token.bos_id, next_token.eos_id, next_token.pad_id})
    never = {next_token.bos_id, next_token.pad_id} - {next_token.eos_id}
    constraints = [*options.constraints, ban(never)]
    if options.no_repeat_ngram:
        constraints.append(no_repeat(options.no_repeat_ngram))
    if options.min_length:
        constraints.append(min_length(options.min_length, next_token.eos_id))
    constraint = compose(*constraints)
    if options.prefix is not None:
        constraint = force_prefix(options.prefix, then=constraint)
    return constraint if options.shortlists is None else compose(restrict_to_shortlists(options.shortlists), constraint)
