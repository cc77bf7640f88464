"""Transformers of your own: trained, used and looked into on the machine you have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heedful.ops.cpu import disable_undescribed_amx

if TYPE_CHECKING:
    from pathlib import Path

    from heedful.inference.record import record

__version__ = "0.1.0"
__all__ = ["__version__", "load", "record"]

disable_undescribed_amx()


def load(*folders: Path | str, precision: str = "auto", device: str = "cpu", shortlist: bool = False) -> Any:
    """Open a model folder, ours or in Hugging Face's form (MarianMT, PEGASUS, GPT-2, BERT), ready for use.

    A translator becomes a `Translator` (several, an ensemble), a GPT a `Generator`, a BERT an `Encoder`. Left open, the
    precision of a translator is the fastest that the machine has, as in every command; others compute in float32. With
    `shortlist` a translator chooses among the tokens that `heedful shortlist` found likely.
    """
    from importlib import import_module  # what is slow is imported when it is needed

    from heedful.errors import SettingError
    from heedful.interop import open_folder

    if not folders:
        raise SettingError("no model folder was given; give one, such as runs/x.")
    opened = [open_folder(folder) for folder in folders]
    family = opened[0].config.family
    if family == "encoder-decoder":
        from heedful.inference.translator import Translator

        return Translator(opened, precision, device, shortlist=shortlist)
    if shortlist:
        raise SettingError(f"a shortlist was asked for, and {folders[0]} does not translate; leave it out.")
    if len(opened) > 1:
        raise SettingError(f"{len(opened)} folders were given, and only translators work together; give one.")
    module, kind = {"decoder": ("generator", "Generator"), "encoder": ("encoder", "Encoder")}[family]
    return getattr(import_module(f"heedful.inference.{module}"), kind)(
        opened[0], "float32" if precision == "auto" else precision, device
    )


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """`heedful.record`: imported with torch when it is asked for, so that `import heedful` stays instant."""
    if name != "record":
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    from heedful.inference.record import record

    return record
