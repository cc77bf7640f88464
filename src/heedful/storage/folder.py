"""A model on disk is a folder: config.json, tokenizer.json, model.safetensors, generation_config.json, README.md.

Saving replaces each file atomically, the weights first and config.json last; in between, config.json accepts the new
weights beside the old ones, so that the folder of a run that is killed there still opens. Loading checks sizes, shapes
and values against the configuration before a model is built, and never executes anything in a folder.

Torch is imported only to read a model as modules; the native engine reads the weight file directly.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful import __version__, config
from heedful.config import ModelConfig, SearchSettings
from heedful.errors import FolderError, SettingError
from heedful.files import find, read_json
from heedful.model.spec import tensor_spec
from heedful.packages import explain_missing
from heedful.storage.atomic import atomic_write, digest, explain_os_errors
from heedful.storage.model_kind import model_kind
from heedful.storage.weight_file import WeightFile, quantized_tensors
from heedful.text import Tokenizer

if TYPE_CHECKING:
    from torch.nn import Module

    from heedful.storage.module_weights import AnyModel

FORMAT = 2  # raised when older code could misread a folder
MAX_POSITION_VALUES, POSITIONS_PER_WEIGHT = (
    1 << 23,
    4,
)  # values of a position table: for any model, or per weight
MAX_TASK_NAME = 50  # characters
STORED_PRECISIONS = ("float32", "int8")  # of the weights on disk
WEIGHTS, CONFIG, SEARCH, CARD = "model.safetensors", "config.json", "generation_config.json", "README.md"
TOKENIZER, SOURCE_TOKENIZER = "tokenizer.json", "source_tokenizer.json"
RUN_SETTINGS = "run.json"  # of the training run that writes its model into the folder
NEW_WEIGHTS = "new_weights_sha256"  # in config.json, while the weights of a model are replaced


@dataclass
class ModelFolder:
    """A model with its tokenizers and search settings; weights on disk are read on first use of `model`."""

    weights: AnyModel | WeightFile
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    search: SearchSettings
    path: Path
    task: str = ""  # that it was trained for, where the family does not tell: summarization, denoising

    @property
    def config(self) -> ModelConfig:
        return self.weights.config

    @property
    def model(self) -> AnyModel:
        if isinstance(self.weights, WeightFile):
            with explain_missing(f"reading {self.path} as PyTorch modules"):
                from heedful.storage.module_weights import read_model

            self.weights = read_model(self.weights)
        return self.weights


def save_folder(folder: ModelFolder, card: str = "", precision: str = "float32") -> None:
    """Write a model folder; other files in it stay as they are."""
    import torch

    from heedful.storage.module_weights import save_weights

    path = folder.path
    with explain_os_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    weights = folder.model.state_dict()
    if precision == "int8":
        quantized = quantized_tensors({name: tensor.float().cpu().numpy() for name, tensor in weights.items()})
        weights = {name: torch.from_numpy(array) for name, array in quantized.items()}
    vocabularies = {TOKENIZER: folder.tokenizer.to_json()}
    if folder.source_tokenizer is not folder.tokenizer:
        vocabularies[SOURCE_TOKENIZER] = folder.source_tokenizer.to_json()
    description = {
        "model_type": "heedful",
        "format": FORMAT,
        "heedful_version": __version__,
        "precision": precision,
        "task": folder.task,
        "model": folder.model.config.model_dump(mode="json"),
    }
    save_weights(weights, path / WEIGHTS, before_replacing=lambda new: _accept(path, new, description, vocabularies))
    for name, content in vocabularies.items():
        atomic_write(path / name, content)
    if SOURCE_TOKENIZER not in vocabularies:
        (path / SOURCE_TOKENIZER).unlink(missing_ok=True)
    save_search(path, folder.search)
    atomic_write(path / CARD, card or "---\nlibrary_name: heedful\n---\n")
    digests = {name: digest(path / name) for name in _files_with_digest(path)}
    atomic_write(path / CONFIG, json.dumps(description | {"sha256": digests}, indent=2))


def _accept(path: Path, new: Path, description: dict[str, Any], vocabularies: dict[str, str]) -> None:
    """Add the digest of new weights to config.json, if they are of the model that the folder holds.

    The weights beside it may be new themselves, if saving was killed before: then their digest replaces the old one.
    """
    old = read_json(path, CONFIG) or {}
    present = {name: (path / name).read_text("utf-8") for name in (TOKENIZER, SOURCE_TOKENIZER) if find(path, name)}
    same_model = all(old.get(key) == description[key] for key in ("model", "precision"))
    if same_model and present == vocabularies:
        if NEW_WEIGHTS in old and old[NEW_WEIGHTS] == digest(path / WEIGHTS):
            old["sha256"][WEIGHTS] = old[NEW_WEIGHTS]
        atomic_write(path / CONFIG, json.dumps(old | {NEW_WEIGHTS: digest(new)}, indent=2))


def save_search(path: Path, search: SearchSettings) -> None:
    """Write the default search settings of a folder."""
    atomic_write(path / SEARCH, search.model_dump_json(indent=2))


def load_folder(path: Path | str) -> ModelFolder:
    """Open a model folder; raises a FolderError that says what is wrong with it."""
    path = Path(path)
    description = read_description(path)
    try:
        return _open_described(path, description)
    except FolderError:  # perhaps because a training run has replaced the weights since
        if (new_description := read_description(path)) == description:
            raise
        return _open_described(path, new_description)


def _open_described(path: Path, description: dict[str, Any]) -> ModelFolder:
    """Open the folder that config.json describes so."""
    model_config = _model_config(path, description)
    _check_digests(path, description.get("sha256", {}), description.get(NEW_WEIGHTS))
    search = config.validate_section(SearchSettings, read_json(path, SEARCH) or {}, str(path / SEARCH))
    tokenizer = source = load_tokenizer(path / TOKENIZER, model_config)
    if model_config.source_vocab_size or find(path, SOURCE_TOKENIZER):
        source = load_tokenizer(path / SOURCE_TOKENIZER, model_config, source=True)
    if find(path, WEIGHTS) is None:
        raise FolderError(f"{path} has no {WEIGHTS}; the folder is incomplete, copy it again.")
    weights = WeightFile(model_config, tensor_spec(model_config), path / WEIGHTS, _precision(path, description))
    check_positions(model_config, parameter_count(weights), path / CONFIG)
    return ModelFolder(weights, tokenizer, source, search, path, _task(path, description))


def load_tokenizer(path: Path, model_config: ModelConfig, source: bool = False) -> Tokenizer:
    """Load a vocabulary with the special ids of the model; a separate source vocabulary keeps its own eos."""
    tokenizer = Tokenizer.load(path, special_ids(model_config, source))
    check_vocabulary(path, tokenizer, (source and model_config.source_vocab_size) or model_config.vocab_size)
    framed = model_config.family == "encoder-decoder" and not model_config.features
    return tokenizer.use_start() if framed else tokenizer


def special_ids(model_config: ModelConfig, source: bool = False) -> dict[str, int]:
    """The special ids of the target vocabulary, or of the source vocabulary as far as a separate one has the same."""
    ids = {"pad": model_config.pad_id, "bos": model_config.bos_id, "eos": model_config.eos_id}
    return {"pad": ids["pad"]} if source and model_config.source_vocab_size is not None else ids


def read_description(path: Path) -> dict[str, Any]:
    """config.json of a model folder, unchecked."""
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise FolderError(f"{path} {what}; give the folder of a trained model, such as runs/x.")
    description = read_json(path, CONFIG)
    if description is None and find(path, RUN_SETTINGS):
        raise FolderError(
            f"{path} holds a run without a model yet: the first validation writes one; wait for it, or continue the"
            " run if it was stopped (--resume, in Python resume=True)."
        )
    if description is None:
        raise FolderError(f"{path} is not a model folder: it has no {CONFIG}; give the folder of a training run.")
    return description


def _model_config(path: Path, description: dict[str, Any]) -> ModelConfig:
    kind, written = description.get("model_type"), description.get("format")
    if kind != "heedful":
        raise FolderError(
            f"{path / CONFIG} describes a model of type {kind!r:.50}; heedful.load opens models of other toolkits."
        )
    if written == 1:
        raise FolderError(
            f"{path} was written in format 1, before the first release, when settings had other names; "
            f"this version reads format {FORMAT}: train the model again, or use the version that wrote it."
        )
    if written != FORMAT:
        raise FolderError(
            f"{path} was written in format {written!r} and this version reads format {FORMAT}; update heedful."
        )
    try:
        return config.validate_section(ModelConfig, description.get("model", {}), "model")
    except SettingError as error:
        raise FolderError(f"{path / CONFIG}: {error}") from None


def _precision(path: Path, description: dict[str, Any]) -> str:
    precision = description.get("precision", "float32")
    if precision not in STORED_PRECISIONS:
        raise FolderError(
            f"{path / CONFIG}: precision is {precision!r:.50}, but this version reads {' and '.join(STORED_PRECISIONS)}"
            "; update heedful."
        )
    return str(precision)


def _task(path: Path, description: dict[str, Any]) -> str:
    task = description.get("task", "")
    if not isinstance(task, str) or len(task) > MAX_TASK_NAME:
        raise FolderError(f"{path / CONFIG}: task is {task!r:.50}; it must be the name of a task.")
    return task


def _check_digests(path: Path, digests: Any, new_weights: Any) -> None:
    if not isinstance(digests, dict):
        raise FolderError(f"{path / CONFIG}: sha256 is {digests!r}; it must map file names to digests.")
    for name, expected in digests.items():
        if name not in (WEIGHTS, TOKENIZER, SOURCE_TOKENIZER):
            raise FolderError(f"{path / CONFIG}: sha256 names {name!r}, which is not a file of a model folder.")
        if find(path, name) is None:
            raise FolderError(f"{path} has no {name}; the folder is incomplete, copy it again.")
        actual = digest(path / name)
        if actual != expected and not (name == WEIGHTS and actual == new_weights):
            raise FolderError(f"{path / name} does not match its digest: it is damaged or was changed; copy it again.")


def check_vocabulary(path: Path, tokenizer: Tokenizer, size: int) -> None:
    """Refuse a vocabulary larger than the embeddings; it may be smaller, as in some converted models."""
    if tokenizer.vocab_size > size:
        raise FolderError(f"{path} has {tokenizer.vocab_size:,} tokens, and the model has embeddings for {size:,}.")


def check_positions(model_config: ModelConfig, parameters: int, where: Path) -> None:
    """Refuse a computed position table that is out of proportion to the weights."""
    widths = {"sinusoidal": model_config.d_model, "syntax": model_config.d_model, "rotary": model_config.key_width}
    width = widths.get(model_config.positions, 0) if model_config.has_positions else 0
    most = max(MAX_POSITION_VALUES, POSITIONS_PER_WEIGHT * parameters)
    longest = max(model_config.max_length, model_config.source_length)
    if longest * width > most:
        raise FolderError(
            f"{where}: max_length is {longest:,}, and its position table is out of proportion "
            f"to the {parameters:,} weights; it may be {most // width:,} at most."
        )


def _files_with_digest(path: Path) -> list[str]:
    return [name for name in (WEIGHTS, TOKENIZER, SOURCE_TOKENIZER) if find(path, name)]


def wrong_family_error(folder: ModelFolder, why: str, instead: str = "") -> FolderError:
    """The error for a command that needs another kind of model; names the commands for this one."""
    kind = model_kind(folder.config, folder.task)
    commands = " or ".join(f"heedful {command}" for command in kind.commands)
    return FolderError(f"{folder.path} holds {kind.title}, which {why}; use {commands}{instead and ', '}{instead}.")


def refuse_denoiser(folder: ModelFolder) -> None:
    """Refuse a model that was only pre-trained, for whatever is more than a start."""
    if folder.task == "denoising":
        raise wrong_family_error(
            folder, "restores text and neither translates nor summarizes", "with this folder for init"
        )


def parameter_count(weights: Module | WeightFile) -> int:
    """Number of parameters; shared ones count once."""
    if isinstance(weights, WeightFile):
        return sum(map(math.prod, weights.shapes.values()))
    return sum(math.prod(p.shape) for p in weights.parameters())
