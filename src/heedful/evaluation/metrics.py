"""Metrics: BLEU, chrF and TER by sacreBLEU with their signatures, exact match; F1 of labels, correlation of numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

from heedful.errors import DataError, SettingError, quote
from heedful.text.words import SPACELESS

SCRIPT_SAMPLE = 500  # references by which the script is recognized
SPACELESS_LETTER = re.compile(f"[{SPACELESS}]")
HAN, KANA = re.compile(r"[\u3400-\u9fff\U00020000-\U0003ffff]"), re.compile(r"[\u3041-\u30ff]")


@dataclass(frozen=True)
class Evaluation:
    """Corpus scores, in percent."""

    bleu: float
    chrf: float
    ter: float
    exact: float
    sentences: int
    signatures: dict[str, str]

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def evaluate(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str | None = None, lowercase: bool = False
) -> Evaluation:
    """Compare translations with one reference each; `tokenize` is a tokenizer of sacreBLEU: none, zh, 13a, …."""
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} translations and {len(references)} references; give one for each.")
    if not references:
        raise DataError("there is nothing to evaluate: no sentence was given.")
    bleu = build_bleu(tokenize or choose_tokenizer(references), lowercase)
    chrf, ter = CHRF(lowercase=lowercase), TER()  # by default TER ignores case, as in sacreBLEU
    scores = {
        name: metric.corpus_score(hypotheses, [references]).score
        for name, metric in (("bleu", bleu), ("chrf", chrf), ("ter", ter))
    }
    fold = str.lower if lowercase else str
    same = sum(fold(h).strip() == fold(r).strip() for h, r in zip(hypotheses, references, strict=True))
    signatures = {name: str(metric.get_signature()) for name, metric in (("BLEU", bleu), ("chrF", chrf), ("TER", ter))}
    return Evaluation(exact=100 * same / len(references), sentences=len(references), signatures=signatures, **scores)


def choose_tokenizer(references: Sequence[str]) -> str | None:
    """SacreBLEU's tokenizer for the script that most letters have; None for its default, 13a.

    Chinese needs `zh`, Japanese `ja-mecab` (`char` if MeCab is not installed), other scripts without spaces `char`.
    """
    text = "".join(references[:SCRIPT_SAMPLE])
    spaceless = len(SPACELESS_LETTER.findall(text))
    if 2 * spaceless < sum(character.isalpha() for character in text) or not spaceless:
        return None
    if len(KANA.findall(text)) > spaceless / 10:
        return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
    return "zh" if len(HAN.findall(text)) > spaceless / 2 else "char"


def build_bleu(tokenize: str | None = None, lowercase: bool = False) -> BLEU:
    """BLEU by sacreBLEU, which warns of tokenized text unless `tokenize` is none."""
    try:
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    except KeyError:
        raise SettingError(f"tokenize is {quote(tokenize)}; it must be one of {', '.join(BLEU.TOKENIZERS)}.") from None
    except (RuntimeError, OSError, ImportError) as error:  # its package or model is missing
        reason = " ".join(str(error).split())
        raise SettingError(f"sacreBLEU's tokenizer {quote(tokenize)} is not ready: {reason}") from None


def quick_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF alone, for validation while training."""
    return {
        "valid_bleu": BLEU(tokenize=choose_tokenizer(references), force=True)
        .corpus_score(hypotheses, [references])
        .score,
        "valid_chrf": CHRF().corpus_score(hypotheses, [references]).score,
    }


def correlation_scores(predicted: Sequence[float], expected: Sequence[float]) -> dict[str, float]:
    """Pearson's correlation, and Spearman's, which is that of the ranks; in percent, 0 if one side is constant."""
    if len(expected) < 2 or len(predicted) != len(expected):
        raise DataError(f"{len(predicted)} numbers and {len(expected)} expected ones; give two or more, one for each.")
    both = np.array([predicted, expected], np.float64)
    return {"valid_pearson": _pearson(both), "valid_spearman": _pearson(np.stack([_ranks(side) for side in both]))}


def _pearson(both: NDArray[np.float64]) -> float:
    centered = both - both.mean(1, keepdims=True)
    norms = float(np.linalg.norm(centered[0]) * np.linalg.norm(centered[1]))
    return 100 * float(centered[0] @ centered[1]) / norms if norms > 0 else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each number; equal numbers have the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[group]
    return ranks


def label_scores(predicted: Sequence[str], expected: Sequence[str]) -> dict[str, float]:
    """Accuracy, and F1 averaged over the labels that occur, in percent."""
    if not expected or len(predicted) != len(expected):
        raise DataError(f"{len(predicted)} labels and {len(expected)} expected ones; give one or more, one for each.")
    both = list(zip(predicted, expected, strict=True))
    correct = sum(a == b for a, b in both)
    f1_scores = []
    for label in sorted(set(predicted) | set(expected)):
        hits = sum(a == b == label for a, b in both)
        f1_scores.append(2 * hits / sum((a == label) + (b == label) for a, b in both))
    return {"valid_accuracy": 100 * correct / len(both), "valid_macro_f1": 100 * sum(f1_scores) / len(f1_scores)}
