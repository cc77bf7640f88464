"""Conversion: MarianMT, PEGASUS, GPT-2, BERT and Whisper in Hugging Face format (read and written), OpenAI's Whisper
checkpoints (read), CTranslate2 (written).

`open_folder` opens heedful and Hugging Face folders, and a Whisper .pt file. A foreign folder is untrusted input:
nothing in it is executed, and its description is compared with its files before memory is allocated.
"""

from pathlib import Path

from heedful.storage import folder
from heedful.storage.folder import ModelFolder

__all__ = ["open_folder"]


def open_folder(path: Path | str) -> ModelFolder:
    """Open a model folder, heedful's or Hugging Face's, or a Whisper checkpoint; all but the first need torch."""
    path = Path(path)
    if path.suffix == ".pt" and path.is_file():
        from heedful.interop import openai_whisper

        return openai_whisper.read(path)
    description = folder.read_description(path)
    if description.get("model_type") == "heedful":
        return folder.load_folder(path)
    from heedful.interop import huggingface

    return huggingface.read(path, description)
