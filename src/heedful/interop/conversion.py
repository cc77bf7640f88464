"""Converts a model folder to another format, and checks that both compute the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from heedful.errors import SettingError
from heedful.interop import agreement, ctranslate2, huggingface, marian_writer, open_folder
from heedful.interop.agreement import Agreement
from heedful.interop.model_card import card
from heedful.storage import folder
from heedful.storage.atomic import atomic_folder, check_output_path
from heedful.storage.folder import ModelFolder


class Format(NamedTuple):
    """How a format is written, and how the result is checked."""

    write: Callable[[ModelFolder, Path], None]
    check: Callable[[ModelFolder, Path], Agreement]


def _write_ours(opened: ModelFolder, path: Path) -> None:
    folder.save_folder(replace(opened, path=path), card(opened, "heedful"))


FORMATS = {
    "heedful": Format(_write_ours, agreement.with_ourselves),
    "huggingface": Format(huggingface.write, agreement.with_transformers),
    "ctranslate2": Format(ctranslate2.write, agreement.with_ctranslate2),
    "marian": Format(marian_writer.write, agreement.with_ourselves),
}


def convert(source: Path, out: Path, to: str = "heedful") -> Agreement:
    """Write `source` to `out` in another format; if the result computes anything else, `out` is removed."""
    if to not in FORMATS:
        raise SettingError(f"the format to convert to is {to!r}; it must be one of {', '.join(FORMATS)}.")
    check_output_path(out)
    opened = open_folder(source)
    with atomic_folder(out.resolve()) as temporary:
        FORMATS[to].write(opened, temporary)
        return FORMATS[to].check(opened, temporary)
