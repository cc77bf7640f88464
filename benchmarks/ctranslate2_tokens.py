"""Whether a CTranslate2 folder gives the same tokens in heedful as in ctranslate2, greedily, line by line.

    zcat en-zh.tsv.gz | cut -f2 | awk 'NR % 291 == 1' > lines.zh  # 101 of the 29,155 pairs of Tatoeba
    python benchmarks/ctranslate2_tokens.py translate-zh_en-1_9 lines.zh --lines 100

The folder is an unpacked package of Argos Translate (sentencepiece.model beside model/), or a CTranslate2 folder with
source.spm. ctranslate2 gets the tokens of the package sentencepiece, not ours, so tokenizers are compared too. Lines
that differ are printed with the number of the first token that does. No figure depends on the time that it takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import ctranslate2
import sentencepiece

import heedful
from heedful.inference.translator import Translator
from sides import machine

MAX_TOKENS = 250  # of an output
Tokens = list[list[str]]  # of each line


def by_ctranslate2(folder: Path, lines: Sequence[str], precision: str) -> Tokens:
    inner = folder / "model" if (folder / "model/model.bin").is_file() else folder
    model = next(path for path in (folder / "sentencepiece.model", folder / "source.spm") if path.is_file())
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(model))
    translator = ctranslate2.Translator(str(inner), device="cpu", compute_type=precision)
    rows = tokenizer.encode(list(lines), out_type=str)
    results = translator.translate_batch(rows, beam_size=1, max_decoding_length=MAX_TOKENS, max_batch_size=16)
    return [result.hypotheses[0] for result in results]


def by_heedful(folder: Path, lines: Sequence[str], precision: str) -> Tokens:
    translator = heedful.load(folder, kind=Translator, precision=precision)
    best = translator.translations(lines, beam=1, loop_guard=False, max_length=MAX_TOKENS)
    return [translator.tokenizer.pieces(translation.ids) for (translation,) in best]


def compare(name: str, lines: Sequence[str], ours: Tokens, theirs: Tokens) -> None:
    pairs = list(zip(lines, ours, theirs, strict=True))
    print(f"{name}: the same tokens on {sum(one == other for _, one, other in pairs)} of {len(lines)} lines")
    for number, (line, one, other) in enumerate(pairs, 1):
        if one != other:
            unlike = (place for place, both in enumerate(zip(one, other, strict=False), 1) if both[0] != both[1])
            first = next(unlike, min(len(one), len(other)) + 1)
            print(f"  line {number}, token {first}: {line}\n    {_text(one)}\n    {_text(other)}")


def _text(tokens: Sequence[str]) -> str:
    return "".join(tokens).replace("▁", " ").strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", type=Path, help="source sentences, one per line")
    parser.add_argument("--lines", type=int, default=100, help="how many of them")
    arguments = parser.parse_args()
    folder = arguments.folder
    lines = arguments.text.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    print(f"ctranslate2 {ctranslate2.__version__}, heedful {version('heedful')}, {machine()}")
    theirs = {precision: by_ctranslate2(folder, lines, precision) for precision in ("float32", "int8")}
    ours = {precision: by_heedful(folder, lines, precision) for precision in ("float32", "int8")}
    for precision, tokens in theirs.items():
        compare(f"heedful and ctranslate2 in {precision}", lines, ours[precision], tokens)
    for name, tokens in (("heedful", ours), ("ctranslate2", theirs)):
        compare(f"{name} in int8 and in float32", lines, tokens["int8"], tokens["float32"])


if __name__ == "__main__":
    main()
