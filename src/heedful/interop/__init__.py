"""Conversion: MarianMT, PEGASUS, GPT-2, BERT and Whisper in Hugging Face format and translators in CTranslate2's and
Marian's (read and written), OpenAI's Whisper checkpoints (read).

`open_folder` opens folders of heedful, Hugging Face, CTranslate2 and Marian, and a Whisper .pt file. A foreign folder
is untrusted input: nothing in it is executed, and its description is compared with its files before memory is
allocated.
"""

from pathlib import Path

from heedful.files import find
from heedful.packages import explain_missing
from heedful.storage import folder
from heedful.storage.folder import ModelFolder

__all__ = ["open_folder"]

MARIAN_DECODER = "decoder.yml"


def open_folder(path: Path | str) -> ModelFolder:
    """Open a folder of heedful or of another toolkit, or a Whisper checkpoint; all but heedful's need torch."""
    path = Path(path)
    with explain_missing(f"opening {path}, which is not in heedful's own format (`heedful convert` writes that),"):
        return _open(path)


def _open(path: Path) -> ModelFolder:
    if path.suffix == ".pt" and path.is_file():
        from heedful.interop import openai_whisper

        return openai_whisper.read(path)
    if package := _argos_package(path):
        from heedful.interop import ctranslate2_reader

        return ctranslate2_reader.read(package, folder.read_description(package), path)
    if path.is_dir() and find(path, MARIAN_DECODER) and not (path / folder.CONFIG).exists():
        from heedful.interop import marian_npz

        return marian_npz.read(path)
    description = folder.read_description(path)
    if description.get("model_type") == "heedful":
        return folder.load_folder(path)
    if "model_type" not in description and find(path, "model.bin"):
        from heedful.interop import ctranslate2_reader

        return ctranslate2_reader.read(path, description, path)
    from heedful.interop import huggingface

    return huggingface.read(path, description)


def _argos_package(path: Path) -> Path | None:
    """The CTranslate2 folder in an unpacked package of Argos Translate, whose tokenizer is one level above."""
    inner = path / "model"
    is_package = (path / "metadata.json").is_file() and not (path / folder.CONFIG).exists()
    return inner if is_package and inner.is_dir() and not inner.is_symlink() and find(inner, "model.bin") else None
