"""Two systems on the same test set: sacreBLEU's paired bootstrap (Koehn, 2004), and the sentences that differ most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import CHRF
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from heedful.errors import DataError
from heedful.evaluation.metrics import build_bleu, choose_tokenizer

SAMPLES = 1000  # bootstrap resamples


@dataclass(frozen=True)
class MetricComparison:
    """A score of both systems, their 95 % confidence intervals, and the p-value of the difference."""

    name: str
    scores: tuple[float, float]
    intervals: tuple[float, float]  # half the width of each
    p_value: float


@dataclass(frozen=True)
class SentenceDifference:
    """A sentence that one system translates better than the other, by sentence-level chrF."""

    number: int
    source: str
    reference: str
    outputs: tuple[str, str]
    scores: tuple[float, float]


def compare(
    outputs: tuple[Sequence[str], Sequence[str]],
    references: Sequence[str],
    tokenize: str | None = None,
    samples: int = SAMPLES,
) -> list[MetricComparison]:
    """BLEU and chrF of both systems by paired bootstrap resampling; the seed is sacreBLEU's."""
    if any(len(translations) != len(references) for translations in outputs) or not references:
        raise DataError(f"{len(outputs[0])} and {len(outputs[1])} translations and {len(references)} references.")
    metrics: dict[str, Metric] = {"BLEU": build_bleu(tokenize or choose_tokenizer(references)), "chrF": CHRF()}
    systems: list[tuple[str, Sequence[str]]] = [("a", outputs[0]), ("b", outputs[1])]
    test = PairedTest(systems, metrics, references=[list(references)], test_type="bs", n_samples=samples)
    results: dict[str, list[Any]] = test()[1]
    same = list(outputs[0]) == list(outputs[1])  # whose p-value sacreBLEU does not define
    return [
        MetricComparison(name, (first.score, second.score), (first.ci, second.ci), 1.0 if same else second.p_value)
        for name, (first, second) in zip(metrics, list(results.values())[1:], strict=True)  # after the systems' names
    ]


def largest_differences(
    sources: Sequence[str], outputs: tuple[Sequence[str], Sequence[str]], references: Sequence[str], count: int
) -> list[SentenceDifference]:
    """The sentences whose translations differ most in chrF, the largest difference first."""
    chrf, differences = CHRF(), []
    rows = zip(sources, *outputs, references, strict=True)
    for number, (source, first, second, reference) in enumerate(rows, 1):
        if first != second:
            scores = tuple(chrf.sentence_score(output, [reference]).score for output in (first, second))
            differences.append(SentenceDifference(number, source, reference, (first, second), (scores[0], scores[1])))
    return sorted(
        differences, key=lambda difference: (-abs(difference.scores[0] - difference.scores[1]), difference.number)
    )[:count]
