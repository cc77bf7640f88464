"""Beam search as a tree: every extension that was considered, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass

from torch import Tensor

from heedful.config import SearchSettings
from heedful.inside.tokens import TokenReader
from heedful.search import Hypothesis, Observer, length_penalty
from heedful.search.beam import Candidates


@dataclass(frozen=True)
class Node:
    """One token after a prefix. `fate` is live (it stays in the beam), ended (a hypothesis) or lost (pruned)."""

    prefix: tuple[int, ...]
    token: int
    log_prob: float  # of the token
    score: float  # sum of the log-probabilities so far
    fate: str


class BeamTree(Observer):
    """Records the beam search of one sentence, by default the first."""

    def __init__(self, sentence: int = 0) -> None:
        self.sentence = sentence
        self.steps: list[list[Node]] = []  # best first
        self.hypotheses: list[Hypothesis] = []

    def choose(
        self, sentence: Tensor, prefix: Tensor, candidates: Candidates, ending: Tensor, live: Candidates
    ) -> None:
        if self.sentence not in sentence.tolist():
            return
        if not prefix.size(1):
            self.steps = []
        place = sentence.tolist().index(self.sentence)
        going = set(zip(live.parent[place].tolist(), live.id[place].tolist(), strict=True))
        nodes = []
        rows = zip(*(column[place].tolist() for column in (*candidates, ending)), strict=True)
        for score, parent, token, log_prob, ends in rows:
            if score == -float("inf"):
                continue
            fate = "ended" if ends else "live" if (parent, token) in going else "lost"
            nodes.append(Node(tuple(prefix[parent].tolist()), token, log_prob, score, fate))
        self.steps.append(nodes)

    def finish(self, indices: Sequence[int], sources: Sequence[Sized], hypotheses: Sequence[list[Hypothesis]]) -> None:
        self.hypotheses = list(hypotheses[self.sentence])

    def as_json(self, reader: TokenReader, settings: SearchSettings) -> dict[str, object]:
        """Nodes with the index of their parent (-1 at the root), and the resulting hypotheses."""
        place: dict[tuple[int, ...], int] = {}
        nodes = []
        for number, step in enumerate(self.steps):
            for node in step:
                over = node.fate == "live" and number == len(self.steps) - 1
                nodes.append(
                    {
                        "step": number,
                        "parent": place.get(node.prefix, -1),
                        "text": reader.label(node.token),
                        "logProb": node.log_prob,
                        "score": node.score,
                        "final": node.score / length_penalty(number + 1, settings) if node.fate == "ended" else None,
                        "fate": "open" if over else node.fate,
                        "best": self._on_best_path(node),
                    }
                )
                if node.fate == "live":
                    place[(*node.prefix, node.token)] = len(nodes) - 1
        return {
            "nodes": nodes,
            "hypotheses": self._verdict(reader, settings),
            "length_penalty": settings.length_penalty,
            "length_penalty_form": settings.length_penalty_form,
            "steps": len(self.steps),
        }

    def _verdict(self, reader: TokenReader, settings: SearchSettings) -> list[dict[str, object]]:
        """All finished hypotheses, best first, and those that were returned unfinished."""
        ended = [(node, len(node.prefix) + 1) for step in self.steps for node in step if node.fate == "ended"]
        finished = {node.prefix: (node.score / length_penalty(n, settings), node.score, n, True) for node, n in ended}
        for hypothesis in self.hypotheses:
            finished.setdefault(
                hypothesis.ids,
                (hypothesis.score, hypothesis.log_prob, len(hypothesis.token_log_probs), hypothesis.finished),
            )
        order = sorted(finished.items(), key=lambda item: (not item[1][3], -item[1][0]))
        keys = ("score", "logProb", "tokens", "finished")
        return [
            {"text": reader.tokenizer.decode(ids)} | dict(zip(keys, hypothesis, strict=True))
            for ids, hypothesis in order
        ]

    def _on_best_path(self, node: Node) -> bool:
        if not self.hypotheses:
            return False
        best, length = self.hypotheses[0], len(node.prefix)
        if node.fate == "ended":
            return best.finished and node.prefix == best.ids
        return node.fate == "live" and (*node.prefix, node.token) == best.ids[: length + 1]
