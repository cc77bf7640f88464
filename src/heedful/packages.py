"""Optional packages: which extra of heedful installs them, and what is said where one is missing.

Translating and serving with the native engine needs none of them; they are imported where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from heedful.errors import SettingError

EXTRAS = {
    "torch": "train",
    "sacrebleu": "train",
    "tensorboard": "train",
    "matplotlib": "train",
    "soundfile": "audio",
    "soxr": "audio",
    "jiwer": "train",
    "sentencepiece": "sentencepiece",
    "transformers": "huggingface",
    "ctranslate2": "ctranslate2",
}


class MissingPackageError(SettingError, ImportError):
    """A package that is needed and not installed."""

    def __init__(self, task: str, package: str) -> None:
        super().__init__(
            f"{task} needs the package {package}, which is not installed; "
            f"install it with: pip install 'heedful[{EXTRAS[package]}]'."
        )


@contextmanager
def explain_missing(task: str) -> Iterator[None]:
    """If an import of an optional package fails in this context, say that `task` needs it and how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingPackageError(task, package) from None


def require(task: str, *packages: str) -> None:
    """Refuse a task whose packages are not all installed, before it has started."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingPackageError(task, package)
