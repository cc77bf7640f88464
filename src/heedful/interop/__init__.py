"""Models of others: MarianMT, PEGASUS, GPT-2 and BERT as Hugging Face folders, both ways; CTranslate2 outwards.

`open_folder` opens ours and theirs. A foreign folder is untrusted input: nothing in it is run, and what it says is
compared with what it holds before memory is taken.
"""

from pathlib import Path

from heedful.storage import folder
from heedful.storage.folder import ModelFolder

__all__ = ["open_folder"]


def open_folder(path: Path | str) -> ModelFolder:
    """A model folder, whoever wrote it; only theirs needs torch to be read."""
    path = Path(path)
    description = folder.read_description(path)
    if description.get("model_type") == "heedful":
        return folder.load_folder(path)
    from heedful.interop import huggingface

    return huggingface.read(path, description)
