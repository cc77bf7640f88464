"""Damaged and good pairs that `heedful clean` drops: `python benchmarks/cleaning.py pairs.tsv.gz 20000`.

Five in a hundred pairs are damaged: half are combined with the translation of another pair, a quarter have their sides
exchanged, a quarter are not translated.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from heedful.data.cleaning import CleaningReport, clean_pairs
from heedful.data.pair_filters import FilterThresholds
from heedful.formats.line_files import read_tsv


class DamagedPairs:
    """Pairs with the kind of each."""

    files: tuple[Path, ...] = ()

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        damaged = len(pairs) // 20
        bad, good = pairs[:damaged], pairs[damaged:]
        self.kinds = dict.fromkeys(good, "good")
        self.kinds |= dict.fromkeys(((a[0], b[1]) for a, b in zip(bad[::2], bad[1::2], strict=False)), "misaligned")
        self.kinds |= dict.fromkeys(((target, source) for source, target in bad[1::4]), "exchanged")
        self.kinds |= dict.fromkeys(((source, source) for source, _ in bad[3::4]), "untranslated")

    def pairs(self, notes: object = None, dropped: object = None) -> Iterator[tuple[str, str]]:
        rows = list(self.kinds)
        random.Random(2).shuffle(rows)
        return iter(rows)


if __name__ == "__main__":
    pairs = list(dict.fromkeys(read_tsv(Path(sys.argv[1]))))
    random.Random(1).shuffle(pairs)
    corpus, report, start = DamagedPairs(pairs[: int(sys.argv[2])]), CleaningReport(), time.perf_counter()
    kept = Counter(corpus.kinds[pair] for pair in clean_pairs(corpus, FilterThresholds(), [], report))
    print(*report.lines(), sep="\n")
    print(f"{time.perf_counter() - start:.1f} s")
    for kind, count in Counter(corpus.kinds.values()).items():
        print(f"{kind}: {count - kept[kind]:,} of {count:,} dropped ({100 * (1 - kept[kind] / count):.1f} %)")
