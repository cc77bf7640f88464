"""One model folder -> another, and the proof that it is the same model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from heedful import folder
from heedful.disk import check_new, new_folder
from heedful.errors import SettingError
from heedful.folder import Folder
from heedful.interop import check, ctranslate2, huggingface, open_folder
from heedful.interop.card import card
from heedful.interop.check import Agreement


class Format(NamedTuple):
    """How a folder is written, and with whom the result is compared."""

    write: Callable[[Folder, Path], None]
    check: Callable[[Folder, Path], Agreement]


def _write_ours(opened: Folder, path: Path) -> None:
    folder.save(replace(opened, path=path), card(opened, "heedful"))


FORMATS = {
    "heedful": Format(_write_ours, check.with_ourselves),
    "huggingface": Format(huggingface.write, check.with_transformers),
    "ctranslate2": Format(ctranslate2.write, check.with_ctranslate2),
}


def convert(source: Path, out: Path, to: str = "heedful") -> Agreement:
    """Write `source` to `out` in another format; if the other side computes anything else, nothing stays."""
    if to not in FORMATS:
        raise SettingError(f"--to is {to!r}; it must be one of {', '.join(FORMATS)}.")
    check_new(out)
    opened = open_folder(source)
    with new_folder(out.resolve()) as temporary:
        FORMATS[to].write(opened, temporary)
        return FORMATS[to].check(opened, temporary)
