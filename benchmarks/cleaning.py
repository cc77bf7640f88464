"""Damaged and good pairs that `heedful clean` drops: `python benchmarks/cleaning.py 20000 0.1 pairs.tsv.gz ...`.

Of up to 20,000 pairs of each file, 10 % are damaged: half are combined with the translation of another pair, a quarter
have their sides exchanged, a quarter are not translated. Precision and recall are those of the filter `alignment` on
the mismatched ones.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from heedful.data.cleaning import FILTERS, CleaningReport, clean_pairs
from heedful.data.pair_filters import FilterThresholds
from heedful.formats.line_files import read_tsv


class DamagedPairs:
    """Pairs with the kind of each."""

    files: tuple[Path, ...] = ()

    def __init__(self, pairs: list[tuple[str, str]], share: float) -> None:
        damaged = round(share * len(pairs))
        bad, good = pairs[:damaged], pairs[damaged:]
        self.kinds = dict.fromkeys(good, "good")
        self.kinds |= dict.fromkeys(((a[0], b[1]) for a, b in zip(bad[::2], bad[1::2], strict=False)), "misaligned")
        self.kinds |= dict.fromkeys(((target, source) for source, target in bad[1::4]), "exchanged")
        self.kinds |= dict.fromkeys(((source, source) for source, _ in bad[3::4]), "untranslated")

    def pairs(self, notes: object = None, dropped: object = None) -> Iterator[tuple[str, str]]:
        rows = list(self.kinds)
        random.Random(2).shuffle(rows)
        return iter(rows)


def measure(path: Path, most: int, share: float) -> None:
    pairs = list(dict.fromkeys(read_tsv(path)))
    random.Random(1).shuffle(pairs)
    corpus, report, start = DamagedPairs(pairs[:most], share), CleaningReport(), time.process_time()
    kept_pairs = set(clean_pairs(corpus, FilterThresholds(), [], report))
    print(f"{path.name}: {report.read:,} pairs, {time.process_time() - start:.1f} s of CPU")
    for kind, count in Counter(corpus.kinds.values()).items():
        dropped = sum(corpus.kinds[pair] == kind and pair not in kept_pairs for pair in corpus.kinds)
        print(f"  {kind}: {dropped:,} of {count:,} dropped ({100 * dropped / count:.1f} %)")
    alone = CleaningReport()
    kept_pairs = set(clean_pairs(corpus, FilterThresholds(), [name for name in FILTERS if name != "alignment"], alone))
    dropped_kinds = Counter(corpus.kinds[pair] for pair in corpus.kinds if pair not in kept_pairs)
    mismatched = Counter(corpus.kinds.values())["misaligned"]
    if mismatched:
        precision = dropped_kinds["misaligned"] / max(1, dropped_kinds["misaligned"] + dropped_kinds["good"])
        print(f"  alignment alone: precision {precision:.1%}, recall {dropped_kinds['misaligned'] / mismatched:.1%}")


if __name__ == "__main__":
    for name in sys.argv[3:]:
        measure(Path(name), int(sys.argv[1]), float(sys.argv[2]))
