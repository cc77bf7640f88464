"""Beam search: next-token distributions -> the best hypotheses of every sentence. Greedy is a beam of one.

Every step takes the model's log-probabilities of all rows, ranks the extensions of each sentence, moves those that end
with eos to the finished hypotheses, keeps the W best others, and removes the sentences that are done from the batch.
Sentences do not influence each other: the result is the same alone or in any batch. Models, text and files are unknown.

Legend: B sentences in the call, A of them still searched, w rows of each (1 at the first step, then W), R = A * w, V
vocabulary, K candidates of each sentence, t tokens so far.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.search.constrained_beam import PhraseBeams, SearchProgress
from heedful.search.hypothesis import Hypothesis, hypotheses, length_penalty
from heedful.search.loops import GUARDED_COPIES, forbid_loops, has_loop, max_copies
from heedful.search.next_token import NextToken
from heedful.search.options import SearchOptions
from heedful.search.rows import SearchRows
from heedful.search.top import top_k


class Candidates(NamedTuple):
    """Extensions of rows by one token, (A, K) each, best first, padded with scores of minus infinity."""

    score: Tensor  # sum of log-probabilities in float64
    parent: Tensor  # row that is extended
    id: Tensor
    log_prob: Tensor  # of that id

    def take(self, order: Tensor) -> Candidates:
        """(A, k) columns -> (A, k) candidates."""
        return Candidates(*(column.gather(1, order) for column in self))

    def where(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(A, K) N of them true -> (N,) parents, ids and log-probabilities."""
        return self.parent[chosen], self.id[chosen], self.log_prob[chosen]


@torch.no_grad()
def beam_search(
    next_token: NextToken, source: Tensor, source_lengths: Tensor, options: SearchOptions
) -> list[list[Hypothesis]]:
    """(B, S), (B,) -> for each sentence at most n_best hypotheses, best first; finished ones before those cut off."""
    results: list[list[Hypothesis]] = [[] for _ in source]
    for finished in beam_steps(next_token, source, source_lengths, options):
        for sentence, n_best in finished:
            results[sentence] = n_best
    return results


@torch.no_grad()
def beam_steps(
    next_token: NextToken,
    source: Tensor,
    source_lengths: Tensor,
    options: SearchOptions,
    cancelled: Collection[int] = (),
) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
    """The same, step by step: the sentences that each step finished, with their hypotheses.

    The caller may add sentences to `cancelled` between steps: the next step ends them with the hypotheses so far.
    Sentences whose best hypothesis has a loop are searched again when the others are finished; those with phrases are
    not, as a phrase may have to repeat.
    """
    options.check_beam()
    if not len(source):
        return
    rows = SearchRows(next_token, source, source_lengths, options)
    if not options.loop_guard:
        yield from _search(rows, options, cancelled)
        return
    audio = source.dim() == 3  # may contain repetitions, which are unknown: only an output without an end is a loop
    sources = [
        [] if audio else ids[:length].tolist() for ids, length in zip(source, source_lengths.tolist(), strict=True)
    ]
    free = [not options.phrases or options.phrases[b] is None for b in range(len(source))]
    again: list[int] = []
    for finished in _search(rows, options, cancelled):
        loops = {b for b, n_best in finished if n_best and free[b] and has_loop(n_best[0].ids, sources[b])}
        if audio:
            loops = {b for b, n_best in finished if b in loops and not n_best[0].finished}
        again += loops
        yield [result for result in finished if result[0] not in loops]
    if again:
        copies = {b: max(GUARDED_COPIES, max_copies(sources[b])) for b in again}
        guarded = options.model_copy(update={"constraints": (*options.constraints, forbid_loops(copies.__getitem__))})
        sentence = torch.tensor(sorted(again), device=source.device)
        yield from _search(SearchRows(next_token, source, source_lengths, guarded, sentence), guarded, cancelled)


def _search(
    rows: SearchRows, options: SearchOptions, cancelled: Collection[int]
) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
    """One beam search of the sentences of `rows`."""
    ends = FinishedHypotheses(rows.limit, options)
    phrases = None
    if options.phrases:
        phrases = PhraseBeams([options.phrases[b] for b in rows.sentence.tolist()], rows.next_token.eos_id)
    score = torch.zeros(len(rows.sentence), 1, dtype=torch.float64, device=rows.sentence.device)  # (A, w)
    while len(score):
        log_probs = rows.step()
        candidates = extend(score, log_probs, options.beam)  # 1. the best extensions of each sentence
        ending, live = split(candidates, options.beam, rows.next_token.eos_id)  # 2. those that end, those that continue
        if phrases is not None:
            ending, live = constrain(phrases, ends.progress(rows), score, log_probs, candidates, ending, live)
        if options.observer is not None:
            options.observer.choose(rows.sentence, rows.prefix, candidates, ending, live)
        ends.finish(rows, candidates, ending)  # 3. endings are finished hypotheses
        done = ends.done(rows, live)  # 4. sentences that no live row can improve
        if cancelled:
            done |= torch.isin(rows.sentence, torch.tensor(sorted(cancelled), device=rows.sentence.device))
        if done.any():
            ends.cut(rows, score, live, done)  # 5. if too few hypotheses finished, live rows fill up
            finished = [(sentence, ends.ranked(sentence)) for sentence in rows.sentence[done].tolist()]
            rows.shrink(~done, live.parent, live.id, live.log_prob)  # 6. done sentences leave the batch,
            ends.leave(done)
            score = live.score[~done]
        else:
            finished = []
            rows.grow(live.parent, live.id, live.log_prob)  # 6. or all continue
            score = live.score
        if phrases is not None:
            phrases.advance(live.parent, live.id, ~done)
        yield finished


def extend(score: Tensor, log_probs: Tensor, beam: int) -> Candidates:
    """(A, w), (R, V) -> the 2W best extensions of each sentence, ties to the lowest row, then the lowest id.

    Each of at most W rows ends in one way, so at least W of them go on.
    """
    sentences, width = score.shape
    total, place = top_k(log_probs, 2 * beam, score)  # (A, K) among w * V
    first = torch.arange(sentences, device=score.device).unsqueeze(1) * width  # (A, 1) row of each sentence
    row, ids = first + place // log_probs.size(1), place % log_probs.size(1)
    return _pad_candidates(Candidates(total, row, ids, log_probs[row, ids]), 2 * beam)


def _pad_candidates(candidates: Candidates, k: int) -> Candidates:
    """Repeat the last candidate at minus infinity until there are k: a small vocabulary has fewer."""
    missing = k - candidates.score.size(1)
    if missing <= 0:
        return candidates
    order = torch.arange(k, device=candidates.score.device).clamp(max=k - missing - 1)
    padded = candidates.take(order.expand(len(candidates.score), -1))
    padded.score[:, k - missing :] = -torch.inf
    return padded


def split(candidates: Candidates, beam: int, eos_id: int) -> tuple[Tensor, Candidates]:
    """-> (A, K) which of the W best candidates end, and the W best (A, W) that continue."""
    ends = candidates.id == eos_id
    if not ends.any():  # the common case
        return ends, Candidates(*(column[:, :beam] for column in candidates))
    ends &= candidates.score > -torch.inf
    live = candidates.take(ends.to(torch.uint8).argsort(dim=1, stable=True)[:, :beam])
    ends[:, beam:] = False  # endings outside the beam are dropped
    return ends, live


def constrain(
    phrases: PhraseBeams,
    progress: list[SearchProgress],
    score: Tensor,
    log_probs: Tensor,
    candidates: Candidates,
    ending: Tensor,
    live: Candidates,
) -> tuple[Tensor, Candidates]:
    """Replace the candidates of sentences with phrases -> (A, K) which candidates end, and (A, W) that continue.

    (A, w) scores, (R, V) log-probabilities.
    """
    beam, width = live.score.size(1), score.size(1)
    ending, live = ending.clone(), Candidates(*(column.clone() for column in live))
    for place, constraint in enumerate(phrases.constraints):
        if constraint is None:
            continue
        first = place * width
        chosen, count = phrases.choose(place, score[place], log_probs[first : first + width], beam, progress[place])
        for columns, extensions in ((candidates, chosen), (live, chosen[count:])):
            columns.score[place] = -torch.inf
            columns.parent[place] = first
            for column, extension in enumerate(extensions):
                columns.score[place, column] = -extension.negative_score
                columns.parent[place, column] = first + extension.row
                columns.id[place, column] = extension.id
                columns.log_prob[place, column] = extension.log_prob
        ending[place] = torch.arange(ending.size(1), device=ending.device) < count
    return ending, live


class FinishedHypotheses:
    """The hypotheses that left the beam, and the score that a live row must reach to join them."""

    def __init__(self, limit: Tensor, options: SearchOptions) -> None:
        self.options = options
        self.hypotheses: defaultdict[int, list[Hypothesis]] = defaultdict(list)  # by sentence
        self.count = torch.zeros_like(limit)  # (A,) finished hypotheses
        kept = options.n_best if options.early_stopping == "n-best" else options.beam
        self.best = torch.full((len(limit), kept), -torch.inf, dtype=torch.float64, device=limit.device)
        longest = [length_penalty(length, options) for length in limit.tolist()]
        self.penalty = self.best.new_tensor(longest)  # (A,) of the longest output

    def progress(self, rows: SearchRows) -> list[SearchProgress]:
        """How far each sentence has come."""
        now, prefixes = length_penalty(rows.length + 1, self.options), self.options.prefix
        sentences = zip(
            rows.sentence.tolist(),
            rows.limit.tolist(),
            self.count.tolist(),
            self.best.tolist(),
            self.penalty.tolist(),
            strict=True,
        )
        return [
            SearchProgress(
                prefixes is not None and rows.length < len(prefixes[sentence]),
                limit - rows.length,
                count,
                tuple(best),
                (now, longest),
            )
            for sentence, limit, count, best, longest in sentences
        ]

    def finish(self, rows: SearchRows, candidates: Candidates, ending: Tensor) -> None:
        """(A, K) which candidates end their row."""
        if not ending.any():
            return
        self._add(rows, ending, *rows.extended(*candidates.where(ending)), finished=True)
        score = candidates.score / length_penalty(rows.length + 1, self.options)
        known = torch.cat((self.best, score.masked_fill(~ending, -torch.inf)), 1)
        self.best = known.topk(self.best.size(1)).values  # (A, n_best or W), largest first
        self.count += ending.sum(1)

    def done(self, rows: SearchRows, live: Candidates) -> Tensor:
        """-> (A,) sentences at their length limit, or whose live rows cannot join the n best (or the W best).

        Log-probabilities only fall and the penalty only grows, so no descendant of a row can score better than its sum
        so far divided by the penalty of the longest output. Once W hypotheses have finished the test is stricter: a
        sentence continues only if its best live row already beats a finished one, or not at all (`first`).
        """
        now = length_penalty(rows.length + 1, self.options)
        penalty = self.penalty.masked_fill(self.count >= self.options.beam, now)
        done = live.score[:, 0] / penalty <= self.best[:, -1]
        if self.options.early_stopping == "first":
            done |= self.count >= self.options.beam
        return done | rows.at_limit() if rows.length + 1 >= rows.shortest else done

    def cut(self, rows: SearchRows, score: Tensor, live: Candidates, done: Tensor) -> None:
        """Store the live rows of done sentences as unfinished hypotheses, where too few have finished."""
        short = done & (self.count < self.options.n_best)
        if not short.any():
            return
        grown = (live.score > -torch.inf) & short.unsqueeze(1)  # (A, W) at the length limit
        self._add(rows, grown, *rows.extended(*live.where(grown)), finished=False)
        stuck = short & (live.score[:, 0] == -torch.inf) & (self.count == 0)  # the constraints allow no token
        keep = (score > -torch.inf) & stuck.unsqueeze(1)  # (A, w)
        self._add(rows, keep, rows.prefix[keep.flatten()], rows.log_probs[keep.flatten()], finished=False)

    def leave(self, done: Tensor) -> None:
        """(A,) which sentences are done."""
        stay = ~done
        self.count, self.best, self.penalty = self.count[stay], self.best[stay], self.penalty[stay]

    def ranked(self, sentence: int) -> list[Hypothesis]:
        """-> the n best of one of the B sentences, best first; unfinished ones come last."""
        return sorted(self.hypotheses.pop(sentence, []), key=lambda h: (not h.finished, -h.score))[
            : self.options.n_best
        ]

    def _add(self, rows: SearchRows, chosen: Tensor, ids: Tensor, log_probs: Tensor, finished: bool) -> None:
        """(A, k) of which N are true, (N, t), (N, t)."""
        sentence = rows.sentence[chosen.nonzero()[:, 0]].tolist()
        for index, hypothesis in zip(sentence, hypotheses(ids, log_probs, self.options, finished), strict=True):
            self.hypotheses[index].append(hypothesis)
