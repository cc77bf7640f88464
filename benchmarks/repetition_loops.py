"""Repetition loops in the outputs of a model, without the guard against them and with it.

    python benchmarks/repetition_loops.py runs/x lines.txt --beam 4

Every line is translated, or summarized, twice. An output has a loop if it has one by the guard's own definition, in
`heedful.search.loops`: an n-gram stands four times in a row or more, and no n-gram of the source as often. An output
without a loop must be the same both times, in tokens and scores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from heedful import Translator, load
from heedful.formats.line_files import read_lines
from heedful.inference.results import Translation
from heedful.search.loops import has_loop


def same(first: Translation, second: Translation) -> bool:
    return (first.ids, first.token_log_probs) == (second.ids, second.token_log_probs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("lines", type=Path, help="sources, one per line")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--examples", type=int, default=1, help="loops to show")
    arguments = parser.parse_args()

    model = load(arguments.model, precision=arguments.precision)
    if not isinstance(model, Translator):
        parser.error(f"{arguments.model} neither translates nor summarizes")
    lines = [line for line in read_lines(arguments.lines) if line.strip()]
    sources = [[*ids, model.source_tokenizer.eos_id] for ids in model.source_tokenizer.encode_batch(lines)]
    outputs = {
        guard: [best for best, *_ in model.translations(lines, beam=arguments.beam, loop_guard=guard)]
        for guard in (False, True)
    }
    loops = {
        guard: [has_loop(output.ids, source) for output, source in zip(outputs[guard], sources, strict=True)]
        for guard in outputs
    }
    pairs = list(zip(lines, outputs[False], outputs[True], loops[False], strict=True))
    print(f"{len(lines):,} lines, beam {arguments.beam}, {model.engine}")
    print(f"without the guard: {sum(loops[False]):,} outputs have a loop")
    print(f"with the guard: {sum(loops[True]):,} outputs have a loop")
    others = [same(plain, guarded) for _, plain, guarded, loop in pairs if not loop]
    print(f"outputs without a loop: {len(others):,}, of which {others.count(False):,} differ with the guard")
    for line, plain, guarded, _ in [pair for pair in pairs if pair[3]][: arguments.examples]:
        print(f"\nsource: {line}\nwithout the guard: {plain.text}\nwith the guard: {guarded.text}")


if __name__ == "__main__":
    main()
