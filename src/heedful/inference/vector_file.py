"""Files of embeddings: a NumPy array, and beside it a note of the model and the texts that it was made of."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError, SettingError
from heedful.files import read_json
from heedful.storage.atomic import atomic_write
from heedful.storage.folder import CONFIG, WEIGHTS

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class VectorTable:
    """(N, D) embeddings, the model for queries, how its states are pooled, and the file of the N texts."""

    vectors: Vectors
    model: Path
    pooling: str = "mean"
    lines: Path | None = None
    noted: Path | None = None  # the model that made them, if it is known
    digest: str = ""  # of its weights, which tells models apart wherever their folders are; empty if it is not known


def write_vectors(path: Path, table: VectorTable) -> None:
    """Write the array, and the note as `PATH.json`."""
    data = io.BytesIO()
    np.save(data, table.vectors)
    atomic_write(path, data.getvalue())
    lines = str(table.lines.resolve()) if table.lines else None
    note = {"model": str(table.model.resolve()), "pooling": table.pooling, "lines": lines}
    note["digest"] = model_digest(table.model)
    atomic_write(_note(path), json.dumps(note, indent=1))


def read_vectors(path: Path, model: Path | None = None, lines: Path | None = None) -> VectorTable:
    """The array and its note; `model` and `lines` replace what the note says."""
    try:
        vectors = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; write it with `heedful embed FOLDER -i lines -o {path}`.") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}; give a .npy file of `heedful embed`."
        ) from None
    except (ValueError, EOFError):
        raise DataError(f"{path} is not a NumPy array (.npy); write it with `heedful embed`.") from None
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise DataError(f"{path} does not hold one vector of numbers per line; write it with `heedful embed`.")
    note = read_json(path.parent, _note(path).name) or {}
    if model is None and not isinstance(note.get("model"), str):
        raise SettingError(f"{path} has no note of its model; give the folder of the encoder as model (`--model`).")
    noted = Path(note["lines"]) if isinstance(note.get("lines"), str) else None
    pooling = note.get("pooling") if isinstance(note.get("pooling"), str) else "mean"
    digest = note.get("digest") if isinstance(note.get("digest"), str) else ""
    maker = Path(note["model"]) if isinstance(note.get("model"), str) else None
    folder = model or Path(note["model"])
    return VectorTable(vectors.astype(np.float32), folder, str(pooling), lines or noted, maker, str(digest))


def model_digest(folder: Path) -> str:
    """The digest of the weights of a model folder, as its config.json has it; empty if it has none."""
    digests = (read_json(folder, CONFIG) or {}).get("sha256")
    weights = digests.get(WEIGHTS) if isinstance(digests, dict) else None
    return weights if isinstance(weights, str) else ""


def other_model_warning(path: Path, table: VectorTable) -> str | None:
    """A sentence for the user if another model made the vectors, by its weights or else by its folder; None if not."""
    now = model_digest(table.model)
    known = bool(now and table.digest)
    if table.noted is None or (now == table.digest if known else table.noted == table.model.resolve()):
        return None
    return (
        f"{path} was written with {table.noted}{'' if known else ', which may be another model'}, and the query is"
        f" embedded with {'other weights' if known else str(table.model)}: similarities of vectors of different models"
        " mean nothing; embed the lines again."
    )


def nearest(vectors: Vectors, query: Vectors, top: int) -> list[tuple[float, int]]:
    """The highest cosine similarities of (N, D) vectors with a (D) query, each with its row; best first."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    cosines = vectors @ query / np.where(lengths > 0, lengths, 1)
    return [(float(cosines[row]), int(row)) for row in np.argsort(-cosines, kind="stable")[:top]]


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
