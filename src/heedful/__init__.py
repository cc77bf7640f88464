"""Transformers of your own: trained, used and inspected on the machine you have."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar, Unpack, overload

from heedful.ops.cpu import disable_undescribed_amx

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from heedful import errors, inside
    from heedful.config import RunConfig
    from heedful.inference.encoder import Encoder
    from heedful.inference.generator import Generator
    from heedful.inference.record import record
    from heedful.inference.summarizer import Summarizer
    from heedful.inference.transcriber import Transcriber
    from heedful.inference.translator import Translator
    from heedful.training.api import train

    M = TypeVar("M", bound=Translator | Generator | Encoder | Transcriber)

    class LoadOptions(TypedDict, total=False):
        """Options of `load`."""

        precision: str
        device: str
        shortlist: bool


__version__ = "0.1.0"
__all__ = [
    "Encoder",
    "Generator",
    "RunConfig",
    "Summarizer",
    "Transcriber",
    "Translator",
    "__version__",
    "errors",
    "inside",
    "load",
    "record",
    "train",
]

# Imported on first use, as most of them import torch: `import heedful` stays instant.
_LAZY = {
    "Encoder": "inference.encoder",
    "Generator": "inference.generator",
    "RunConfig": "config",
    "Summarizer": "inference.summarizer",
    "Transcriber": "inference.transcriber",
    "Translator": "inference.translator",
    "record": "inference.record",
    "train": "training.api",
}
_MODULES = ("errors", "inside")

disable_undescribed_amx()


@overload
def load(*folders: Path | str, kind: type[M], **options: Unpack[LoadOptions]) -> M: ...
@overload
def load(first: Path | str, second: Path | str, /, *more: Path | str, **options: Unpack[LoadOptions]) -> Translator: ...
@overload
def load(*folders: Path | str, shortlist: Literal[True], precision: str = ..., device: str = ...) -> Translator: ...
@overload
def load(
    *folders: Path | str, precision: str = ..., device: str = ...
) -> Translator | Generator | Encoder | Transcriber: ...
def load(
    *folders: Path | str,
    kind: type[object] | None = None,
    precision: str = "auto",
    device: str = "cpu",
    shortlist: bool = False,
) -> Translator | Generator | Encoder | Transcriber:
    """Open a model folder: heedful's, Hugging Face's (MarianMT, PEGASUS, GPT-2, BERT, Whisper) or CTranslate2's.

    A translator becomes a `Translator` (several folders, an ensemble), a model trained for summarization a
    `Summarizer`, which is a `Translator` too, a GPT a `Generator`, a BERT an `Encoder`, a speech recognizer a
    `Transcriber`; that may also be a .pt file of OpenAI's Whisper.
    `kind` names the class that is expected, for type checkers; another model is an error. With precision "auto" a
    translator or a speech recognizer computes in the fastest precision of the machine, other models in float32. With
    `shortlist` a translator chooses among the tokens that `heedful shortlist` found likely.
    """
    from heedful.errors import SettingError
    from heedful.packages import explain_missing

    if not folders:
        raise SettingError("no model folder was given; give one, such as runs/x.")
    with explain_missing(f"opening {folders[0]}"):
        return _open(folders, kind, precision, device, shortlist)


def _open(
    folders: tuple[Path | str, ...], kind: type[object] | None, precision: str, device: str, shortlist: bool
) -> Translator | Generator | Encoder | Transcriber:
    from heedful.errors import SettingError
    from heedful.inference.native_choice import log_torch_notice
    from heedful.interop import open_folder

    opened = [open_folder(folder) for folder in folders]
    config = opened[0].config
    name = {"encoder-decoder": "Translator", "decoder": "Generator", "encoder": "Encoder"}[config.family]
    name = "Transcriber" if config.features else name
    if name == "Translator":
        from heedful.inference.open_model import translator_type

        opens = translator_type(opened[0])
        name = opens.__name__
    if kind is not None and not isinstance(kind, type):
        raise SettingError(f"kind is {kind!r}; give a class, such as heedful.{name}.")
    if kind is not None and kind.__name__ != name:
        raise SettingError(f"{folders[0]} holds a model for {name}, not for {kind.__name__}; load it as {name}.")
    log_torch_notice(opened, device, precision)
    if name in ("Translator", "Summarizer"):
        return opens(opened, precision, device, shortlist=shortlist)
    if shortlist:
        raise SettingError(f"a shortlist was asked for, and {folders[0]} does not translate; leave it out.")
    if len(opened) > 1:
        raise SettingError(f"{len(opened)} folders were given, and only translators work together; give one.")
    if name == "Transcriber":
        from heedful.inference.transcriber import Transcriber

        return Transcriber(opened[0], precision, device)
    precision = "float32" if precision == "auto" else precision
    if name == "Generator":
        from heedful.inference.generator import Generator

        return Generator(opened[0], precision, device)
    from heedful.inference.encoder import Encoder

    return Encoder(opened[0], precision, device)


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name in _MODULES:
        return _import(name, name)
    if name not in _LAZY:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    return getattr(_import(name, _LAZY[name]), name)


def _import(name: str, module: str) -> ModuleType:
    from heedful.packages import explain_missing

    with explain_missing(f"heedful.{name}"):
        return import_module(f"heedful.{module}")
