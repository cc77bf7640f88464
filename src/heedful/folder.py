"""A model on disk is a folder: config.json, tokenizer.json, model.safetensors, generation_config.json, README.md.

Saving replaces each file as a whole, the weights first and config.json last. Loading trusts nothing: sizes, shapes and
numbers are checked against the configuration before a model is built, and nothing in a folder is ever executed.

Weights are float32, or int8: then every matrix but tables of positions is whole numbers with scales beside them.
"""

from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from heedful import __version__, config
from heedful.config import ModelConfig, SearchSettings
from heedful.disk import digest, explained, sync, write_file
from heedful.errors import FolderError, SettingError
from heedful.model import DecoderModel, EncoderDecoder, EncoderModel, build
from heedful.ops.quantise import MOST, reduce, restore
from heedful.text import Tokenizer

FORMAT = 1  # raised when older code could misread a folder
MOST_JSON = 4 << 20  # bytes of a JSON file we are willing to parse
TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I8": torch.int8}
FLOAT_NAMES = TYPES.keys() - {"I8"}  # as safetensors calls them
FLOATS = {TYPES[name] for name in FLOAT_NAMES}
STORED = ("float32", "int8")  # what weights are kept in
SCALE = "_scale"  # behind the name of a matrix in int8: the name of its scales
WEIGHTS, CONFIG, SEARCH, CARD = "model.safetensors", "config.json", "generation_config.json", "README.md"
TOKENIZER, SOURCE_TOKENIZER = "tokenizer.json", "source_tokenizer.json"

AnyModel = EncoderDecoder | DecoderModel | EncoderModel


@dataclass
class Folder:
    """A model with everything it takes to use it; the weights of one on disk are read when the model is wanted."""

    weights: AnyModel | Stored
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    search: SearchSettings
    path: Path

    @property
    def config(self) -> ModelConfig:
        return self.weights.config

    @property
    def model(self) -> AnyModel:
        if isinstance(self.weights, Stored):
            self.weights = self.weights.model()
        return self.weights


class Stored:
    """Weights in a file, checked but not kept in memory.

    The file stays open, so they are the same whenever they are read, even if another one has taken its place.
    """

    def __init__(self, model_config: ModelConfig, path: Path, precision: str) -> None:
        self.config, self.path, self.shapes = model_config, path, shapes(model_config)
        _check_weights(path, _expected(self.shapes, precision))
        self.file = path.open("rb")
        weakref.finalize(self, self.file.close)
        self.written = os.fstat(self.file.fileno()).st_mtime_ns
        size = int.from_bytes(self.file.read(8), "little")
        self.head, self.first = json.loads(self.file.read(size)), 8 + size
        for _ in self.tensors():  # which checks them
            pass

    def tensors(self) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """All tensors by name, one after the other; those of 8 bits with their scales."""
        for name in self.shapes:
            tensor, scale = self._tensor(name), None
            if tensor.dtype == torch.int8:
                if max(-int(tensor.min()), int(tensor.max())) > MOST:
                    raise FolderError(
                        f"{self.path}: {name} holds whole numbers beyond {MOST}; the model cannot be used."
                    )
                scale = self._tensor(name + SCALE)
            check_finite(tensor if scale is None else scale * MOST, name, self.path)
            yield name, tensor, scale

    def model(self) -> AnyModel:
        """The model as modules, in float32, whatever mode torch is in."""
        given = ((name, each if scale is None else restore(each, scale)) for name, each, scale in self.tensors())
        with torch.inference_mode(False):
            return fill(self.config, given, self.path)

    def _tensor(self, name: str) -> Tensor:
        """Read and not mapped, so that of the file nothing stays in memory."""
        about = self.head[name]
        tensor = torch.empty(about["shape"], dtype=TYPES[about["dtype"]])
        self.file.seek(self.first + about["data_offsets"][0])
        read = self.file.readinto(tensor.view(-1).view(torch.uint8).numpy().data)
        if read != tensor.nbytes or os.fstat(self.file.fileno()).st_mtime_ns != self.written:
            raise FolderError(f"{self.path} was changed while it was in use; load the model again.")
        return tensor


def save(folder: Folder, card: str = "", precision: str = "float32") -> None:
    """Write a model folder; other files in it stay as they are."""
    path = folder.path
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)
    weights = folder.model.state_dict()
    save_weights(_reduced(weights) if precision == "int8" else weights, path / WEIGHTS)
    write_file(path / TOKENIZER, folder.tokenizer.to_json())
    if folder.source_tokenizer is not folder.tokenizer:
        write_file(path / SOURCE_TOKENIZER, folder.source_tokenizer.to_json())
    else:
        (path / SOURCE_TOKENIZER).unlink(missing_ok=True)
    write_file(path / SEARCH, folder.search.model_dump_json(indent=2))
    write_file(path / CARD, card or "---\nlibrary_name: heedful\n---\n")
    description = {
        "model_type": "heedful",
        "format": FORMAT,
        "heedful_version": __version__,
        "precision": precision,
        "sha256": {name: digest(path / name) for name in _hashed(path)},
        "model": folder.model.config.model_dump(),
    }
    write_file(path / CONFIG, json.dumps(description, indent=2))


def save_weights(weights: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Replace one safetensors file as a whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    with explained(path):
        try:
            save_file(plain, temporary, metadata or {"format": "pt"})
            temporary.chmod(0o644)  # like every other file of a model folder
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        finally:
            temporary.unlink(missing_ok=True)


def load(path: Path | str) -> Folder:
    """Open a model folder, or say in one sentence why it is not one."""
    path = Path(path)
    description = read_description(path)
    model_config = _model_config(path, description)
    _check_digests(path, description.get("sha256", {}))
    search = config.build(SearchSettings, read_json(path / SEARCH), str(path / SEARCH)) if _has(path, SEARCH) else None
    tokenizer = source = load_tokenizer(path / TOKENIZER, model_config)
    if model_config.source_vocab_size or _has(path, SOURCE_TOKENIZER):
        source = load_tokenizer(path / SOURCE_TOKENIZER, model_config, source=True)
    weights = Stored(model_config, path / WEIGHTS, _precision(path, description))
    return Folder(weights, tokenizer, source, search or SearchSettings(), path)


def load_tokenizer(path: Path, model_config: ModelConfig, source: bool = False) -> Tokenizer:
    """A vocabulary that fits the model, which says what frames a sequence; a separate source keeps its own eos."""
    ids = {"pad": model_config.pad_id, "bos": model_config.bos_id, "eos": model_config.eos_id}
    separate = source and model_config.source_vocab_size is not None
    tokenizer = Tokenizer.load(path, ids={"pad": model_config.pad_id} if separate else ids)
    check_vocabulary(path, tokenizer, (source and model_config.source_vocab_size) or model_config.vocab_size)
    return tokenizer


def shapes(model_config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The tensors of such a model, by name; takes no memory for them."""
    with torch.device("meta"), _Undrawn():
        return {name: tuple(tensor.shape) for name, tensor in build(model_config).state_dict().items()}


def fill(model_config: ModelConfig, tensors: Iterable[tuple[str, Tensor]], where: Path) -> AnyModel:
    """A model of these weights, by name, ready for use; each is asked for when it is wanted, and copied."""
    with _Undrawn():
        model = build(model_config)
    places = model.state_dict()
    for name, tensor in tensors:
        check_finite(tensor, name, where)
        places.pop(name).copy_(tensor)
    if places:
        raise FolderError(f"{where} lacks {next(iter(places))}, which the configuration calls for.")
    return model.eval()


class _Undrawn(TorchFunctionMode):
    """No random numbers are drawn for weights that are replaced at once: for a large model they take a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.uniform_, Tensor.normal_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def _is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Whether it is kept in 8 bits if the folder is: all that is multiplied or looked up, but no table of positions."""
    return len(shape) > 1 and "position" not in name.split(".")


def _reduced(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights as an int8 folder has them."""
    stored = dict(weights)
    for name, tensor in weights.items():
        if _is_matrix(name, tensor.shape):
            stored[name], stored[name + SCALE] = reduce(tensor)
    return stored


def _expected(shapes: Mapping[str, tuple[int, ...]], precision: str) -> dict[str, tuple[tuple[int, ...], set[str]]]:
    """Every tensor of a file of weights: its shape, and the types that it may have."""
    expected = {name: (shape, FLOAT_NAMES) for name, shape in shapes.items()}
    if precision == "int8":
        for name, shape in shapes.items():
            if _is_matrix(name, shape):
                expected |= {name: (shape, {"I8"}), name + SCALE: (shape[:1], {"F32"})}
    return expected


def finite(tensor: Tensor) -> bool:
    """Whether all are finite numbers; the smallest and the largest of them show what is not, without a copy."""
    return tensor.dtype in FLOATS and all(bool(bound.isfinite()) for bound in tensor.aminmax())


def check_finite(tensor: Tensor, name: str, where: Path) -> None:
    if not finite(tensor):
        raise FolderError(f"{where}: {name} holds numbers that are not finite; the model cannot be used.")


def read_description(path: Path) -> dict[str, Any]:
    """config.json of a model folder, as it stands."""
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise FolderError(f"{path} {what}; give the folder of a trained model, such as runs/x.")
    if not _has(path, CONFIG):
        raise FolderError(f"{path} is not a model folder: it has no {CONFIG}; give the --out of a training run.")
    return read_json(path / CONFIG)


def read_json(path: Path, most: int = MOST_JSON) -> dict[str, Any]:
    """A JSON object of a reasonable size."""
    try:
        if path.stat().st_size > most:
            raise FolderError(f"{path} has {path.stat().st_size:,} bytes; a file of settings is not that large.")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path} is not valid JSON ({error}); the folder is damaged.") from None
    if not isinstance(content, dict):
        raise FolderError(f"{path} holds a JSON {type(content).__name__} where an object is expected.")
    return content


def _model_config(path: Path, description: dict[str, Any]) -> ModelConfig:
    kind, written = description.get("model_type"), description.get("format")
    if kind != "heedful":
        raise FolderError(f"{path / CONFIG} describes a model of type {kind!r:.50}; only heedful.load opens others'.")
    if written != FORMAT:
        raise FolderError(
            f"{path} was written in format {written!r} and this version reads format {FORMAT}; update heedful."
        )
    try:
        return config.build(ModelConfig, description.get("model", {}), "model")
    except SettingError as error:
        raise FolderError(f"{path / CONFIG}: {error}") from None


def _precision(path: Path, description: dict[str, Any]) -> str:
    found = description.get("precision", "float32")
    if found not in STORED:
        raise FolderError(
            f"{path / CONFIG}: precision is {found!r:.50}, and this version reads {' and '.join(STORED)}; "
            "update heedful."
        )
    return str(found)


def _check_digests(path: Path, digests: Any) -> None:
    if not isinstance(digests, dict):
        raise FolderError(f"{path / CONFIG}: sha256 is {digests!r} where a table of files is expected.")
    for name, expected in digests.items():
        if name not in (WEIGHTS, TOKENIZER, SOURCE_TOKENIZER):
            raise FolderError(f"{path / CONFIG}: sha256 names {name!r}, which is no file of a model folder.")
        if not _has(path, name):
            raise FolderError(f"{path} has no {name}; the folder is incomplete, copy it again.")
        if digest(path / name) != expected:
            raise FolderError(f"{path / name} is not what was saved: it is damaged or was changed; copy it again.")


def _check_weights(weights: Path, expected: dict[str, tuple[tuple[int, ...], set[str]]]) -> None:
    """Compare the head of a file with what there should be."""
    try:
        with safe_open(weights, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: (tuple(each.get_shape()), each.get_dtype()) for name, each in slices.items()}
    except FileNotFoundError:
        raise FolderError(f"{weights} does not exist; the folder is incomplete, copy it again.") from None
    except (SafetensorError, OSError) as error:
        raise FolderError(f"{weights} is damaged ({error}); copy it again.") from None
    for name, (shape, types) in expected.items():
        if name not in found:
            raise FolderError(f"{weights} lacks {name}, which the configuration calls for.")
        if found[name][0] != shape:
            raise FolderError(f"{weights}: {name} has shape {found[name][0]}, and the configuration says {shape}.")
        if found[name][1] not in types:
            wanted = " or ".join(sorted(types))
            raise FolderError(f"{weights}: {name} is of type {found[name][1]}, and the configuration says {wanted}.")
    surplus = sorted(found.keys() - expected.keys())
    if surplus:
        raise FolderError(f"{weights} holds {surplus[0]}, for which the configuration has no place.")


def check_vocabulary(path: Path, tokenizer: Tokenizer, size: int) -> None:
    """Refuse ids that the model has no embedding for; some models have more of them than their vocabulary uses."""
    if tokenizer.vocab_size > size:
        raise FolderError(f"{path} has {tokenizer.vocab_size:,} tokens, and the model knows {size:,}.")


def _hashed(path: Path) -> list[str]:
    return [name for name in (WEIGHTS, TOKENIZER, SOURCE_TOKENIZER) if _has(path, name)]


def _has(path: Path, name: str) -> bool:
    return (path / name).is_file()


def parameter_count(weights: torch.nn.Module | Stored) -> int:
    """Numbers that the model learned; shared ones count once."""
    if isinstance(weights, Stored):
        return sum(map(math.prod, weights.shapes.values()))
    return sum(math.prod(p.shape) for p in weights.parameters())
