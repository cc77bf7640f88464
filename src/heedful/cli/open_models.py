"""Model folders as the commands use them: threads, precision and device checked, notices on stderr."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import SettingError

if TYPE_CHECKING:
    from heedful.cli.options import Compute
    from heedful.data.token_trees import TokenTrees
    from heedful.inference.encoder import Encoder
    from heedful.inference.generator import Generator
    from heedful.inference.term_matching import Glossary
    from heedful.inference.transcriber import Transcriber
    from heedful.inference.translator import Translator
    from heedful.storage.folder import ModelFolder


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    if device == "cpu":
        return
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise SettingError(f"--device is {device!r}; it must be cpu, cuda, or cuda:1 for the second GPU.")
    import torch

    gpus = torch.cuda.device_count()
    if int(device.removeprefix("cuda").lstrip(":") or 0) >= gpus:
        available = f"{gpus or 'no'} GPU{'s' * (gpus > 1)}"
        raise SettingError(f"--device is {device}, but torch finds {available} here; leave it out, or set it to cpu.")


def torch_precision(compute: Compute) -> str:
    """The precision of work that PyTorch always computes."""
    from heedful.ops.precision import choose_precision

    if compute.precision not in ("auto", "float32", "bfloat16"):
        raise SettingError(f"--precision is {compute.precision!r}; it must be auto, float32 or bfloat16.")
    check_device(compute.device)
    return choose_precision(compute.precision, compute.device)


def set_threads(threads: int) -> None:
    """Set the number of CPU threads; 0 for all cores."""
    from heedful.ops import threads as cpu

    if threads < 0:
        raise SettingError(f"--threads is {threads}; it must be 0 (all cores) or more.")
    if threads:
        cpu.set_num_threads(threads)


def open_translator(models: Sequence[Path], compute: Compute, trees: Sequence[Path] | None = None) -> Translator:
    """Load one model, or several as an ensemble, for translation; notices go to stderr."""
    from heedful.inference.open_model import translator_type
    from heedful.storage.folder import refuse_denoiser

    folders = _open_folders(models, compute)
    for folder in folders:
        refuse_denoiser(folder)
    kind = translator_type(folders[0])
    translator = kind(folders, **vars(compute))
    translator.notice = print_notice
    if trees:
        translator.use_trees(trees)
    else:
        warn_without_trees(*folders)
    print_torch_notice(folders, compute.device, compute.precision)
    gc.freeze()  # the loaded objects stay: without this, garbage collection takes a tenth of the time
    return translator


def warn_without_trees(*folders: ModelFolder) -> None:
    """Say that a model with syntax positions gets no trees."""
    from heedful.inference.source_trees import missing_trees_notice

    for folder in folders:
        if notice := missing_trees_notice(folder):
            print_notice(notice)


def read_trees(folder: ModelFolder, trees: Sequence[Path] | None) -> list[TokenTrees]:
    """Give a model its trees, if there are any; else warn if it needs them."""
    from heedful.inference.source_trees import use_trees

    if trees:
        return [use_trees(folder, trees)]
    warn_without_trees(folder)
    return []


@contextmanager
def tree_summary(*trees: TokenTrees) -> Iterator[None]:
    """Print the share of sentences with a tree at the end, if trees are given; an error if there is none."""
    yield
    for given in trees[:1]:  # the models of an ensemble read the same sentences
        print_notice(given.describe())


def open_encoder(model: Path, compute: Compute) -> Encoder:
    """Load a BERT; notices go to stderr."""
    from heedful.inference.encoder import Encoder

    folders = _open_folders([model], compute)
    encoder = Encoder(folders[0], compute.precision, compute.device)
    encoder.notice = print_notice
    print_torch_notice(folders, compute.device, compute.precision)
    return encoder


def open_generator(model: Path, compute: Compute) -> Generator:
    """Load a GPT."""
    from heedful.inference.generator import Generator

    folders = _open_folders([model], compute)
    generator = Generator(folders[0], compute.precision, compute.device)
    print_torch_notice(folders, compute.device, compute.precision)
    return generator


def open_transcriber(model: Path, compute: Compute) -> Transcriber:
    """Load a speech recognizer."""
    from heedful.inference.transcriber import Transcriber

    folders = _open_folders([model], compute)
    transcriber = Transcriber(folders[0], compute.precision, compute.device)
    print_torch_notice(folders, compute.device, compute.precision)
    return transcriber


def _open_folders(models: Sequence[Path], compute: Compute) -> list[ModelFolder]:
    from heedful.interop import open_folder

    set_threads(compute.threads)
    check_device(compute.device)
    return [open_folder(model) for model in models]


def print_torch_notice(folders: Sequence[ModelFolder], device: str = "cpu", precision: str = "auto") -> None:
    """Say why PyTorch computes a model, if that was not asked for."""
    from heedful.inference.native_choice import torch_notice

    if notice := torch_notice(folders, device, precision):
        print_notice(notice)


def print_notice(text: str) -> None:
    print(text, file=sys.stderr)


def read_glossary(
    path: Path | None, source_language: str | None = None, target_language: str | None = None
) -> Glossary | None:
    """The glossary of a command, if one is given."""
    if path is None:
        return None
    from heedful.inference.term_matching import Glossary

    return Glossary.read(path, source_language, target_language)
