"""CPU time of beam search with a glossary loaded, relative to plain beam search.

    python benchmarks/glossary_cost.py runs/x pairs.tsv test.en --terms 1000 --rounds 5

The terms are words of the pairs with their likeliest translations, by a lexical table; with --random each has a rare
word of the other side, chosen at random, which a model would never write. Both sides alternate; CPU time is that of
the process, one thread.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections import Counter
from pathlib import Path

from heedful import Translator
from heedful.data.lexical_table import WORD, learn_table
from heedful.formats.line_files import read_tsv
from heedful.formats.termbase import Term
from heedful.inference.term_matching import Glossary
from heedful.storage.folder import load_folder

SAMPLE = 50_000  # pairs of the lexical table
COMMONEST = 300  # words that are no terms
RARE = 3  # occurrences of a rare word at most


def rare_terms(pairs: list[tuple[str, str]], count: int) -> list[Term]:
    """Words of the source that are not among the commonest, each with its likeliest translation as it is written."""
    table = learn_table(pairs)
    written = Counter(word for _, target in pairs for word in WORD.findall(target))
    forms = {word.lower(): word for word, _ in reversed(written.most_common())}
    targets = list(table.target_ids)
    terms = []
    for source in itertools.islice(table.source_ids, COMMONEST, None):
        first = table.source_ids[source] * len(targets)
        low, high = table.keys.searchsorted((first, first + len(targets)))
        best = low + int(table.probabilities[low:high].argmax()) if low < high else low
        if low < high and table.probabilities[best] > 0.5:
            terms.append(Term(source, (forms.get(word := targets[table.keys[best] - first], word),)))
        if len(terms) == count:
            break
    return terms


def random_terms(pairs: list[tuple[str, str]], count: int) -> list[Term]:
    """The same source words, each with a rare word of the target side."""
    written = Counter(word for _, target in pairs for word in WORD.findall(target))
    rare = sorted(word for word, occurrences in written.items() if occurrences <= RARE and len(word) > 3)
    draw = random.Random(1)
    return [Term(term.source, (draw.choice(rare),)) for term in rare_terms(pairs, count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("pairs", type=Path, help="TSV file from which terms are taken")
    parser.add_argument("source", type=Path, help="lines to translate")
    parser.add_argument("--terms", type=int, default=1000)
    parser.add_argument("--random", action="store_true", help="terms that the model would never write")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    pairs = list(itertools.islice(read_tsv(arguments.pairs), SAMPLE))
    glossary = Glossary((random_terms if arguments.random else rare_terms)(pairs, arguments.terms))
    lines = arguments.source.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    matched = sum(bool(glossary.find(line)) for line in lines)
    print(f"{len(glossary):,} terms, {matched:,} of {len(lines):,} lines with a term")
    translator = Translator([load_folder(arguments.model)], "int8", threads=1)
    ratios = []
    for number in range(arguments.rounds + 1):
        seconds = []
        for used in (None, glossary):
            start = time.process_time()
            translator.translate(lines, glossary=used, beam=4)
            seconds.append(time.process_time() - start)
        if number:  # the first round warms up
            ratios.append(seconds[1] / seconds[0])
            print(f"plain {seconds[0]:.2f} s, glossary {seconds[1]:.2f} s, ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
