"""What commands read and write: files or pipes, UTF-8, lines that end at a line feed and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from heedful.translate import Translator

DASH = Path("-")


def input_lines(path: Path) -> Iterator[str]:
    """The lines of a file, plain or .gz, or of standard input."""
    from heedful.data.readers import decode_lines, read_lines

    return decode_lines(sys.stdin.buffer, "standard input") if path == DASH else read_lines(path)


@contextmanager
def output_stream(path: Path) -> Iterator[TextIO]:
    """A file or standard output, in UTF-8 whatever the locale says."""
    from heedful.disk import explained

    if path == DASH:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    with explained(path), path.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def prepare_torch(threads: int = 0, precision: str = "float32") -> str:
    """Check and apply what every command that computes can be told; the precision to compute in."""
    import torch

    from heedful.errors import SettingError
    from heedful.ops.precision import choose

    if precision not in ("auto", "float32", "bfloat16"):
        raise SettingError(f"--precision is {precision!r}; it must be auto, float32 or bfloat16.")
    if threads < 0:
        raise SettingError(f"--threads is {threads}; it must be 0 (all cores) or more.")
    if threads:
        torch.set_num_threads(threads)
    return choose(precision, torch.device("cpu"))


def open_translator(models: Sequence[Path], threads: int = 0, precision: str = "float32") -> Translator:
    """Load model folders for translation; what they have to say while translating goes to stderr."""
    from heedful.interop import open_folder
    from heedful.translate import Translator

    precision = prepare_torch(threads, precision)
    translator = Translator([open_folder(model) for model in models], precision)
    translator.notice = lambda text: print(text, file=sys.stderr)
    return translator
