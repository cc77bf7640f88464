"""Compares a converted model with the original: a few sequences through both must give the same outputs."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.errors import FolderError
from heedful.inference.torch_backend import ModelNextToken
from heedful.interop import ctranslate2, open_folder
from heedful.interop.huggingface import architecture_for
from heedful.interop.vocabulary_files import TARGET
from heedful.model.transformer import DecoderModel, EncoderDecoder, EncoderModel
from heedful.packages import explain_missing
from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer

LINES = (
    "Hello!",
    "A man in a blue shirt is standing on a ladder, cleaning a window.",
    "Ein kleines Mädchen spielt am 3. Oktober im Garten; es regnet nicht.",
    "L'été, où l'on n'a rien à faire… « rien ! »",
    "x",
)
RANDOM_ROWS = (1, 2, 3, 7, 12)  # lengths of random sequences, which cover rare tokens
LONGEST = 16  # tokens that are decoded
AUDIO_ROWS = (2, 6)  # numbers of target tokens; of audio, the sources are noise
TOLERANCE = 1e-4  # of logits, in proportion to the largest


class Agreement(NamedTuple):
    """What was compared, and how far apart the numbers were."""

    other: str
    sequences: int
    difference: float
    decoded: bool  # whether the tokens that follow were compared too; encoders have none


def with_ourselves(opened: ModelFolder, path: Path) -> Agreement:
    """The converted folder, loaded again."""
    again, other = open_folder(path), "the new folder"
    _same_ids(opened.source_tokenizer, again.source_tokenizer.encode, other)
    _same_ids(opened.tokenizer, again.tokenizer.encode, other)
    rows, differences, model = _rows(opened), [], again.model
    for row in rows:
        differences.append(_apart(_scores(opened.model, row), _scores(model, row), other, row))
        if not isinstance(opened.model, EncoderModel) and not isinstance(model, EncoderModel):
            _same_output(_greedy(opened.model, row), _greedy(model, row), other, row)
    return Agreement(other, len(rows), max(differences), not isinstance(model, EncoderModel))


@torch.inference_mode()
def with_transformers(opened: ModelFolder, path: Path) -> Agreement:
    """Compare logits or hidden states of every sequence, greedy decoding and the tokenizer with transformers."""
    library = _transformers()
    with _quiet(library):
        other = _loaded(library, opened, path)
        tokenizer = library.AutoTokenizer.from_pretrained(path)
        start = opened.source_tokenizer.start
        _same_ids(opened.source_tokenizer, lambda text: [*start, *_unframed(tokenizer, text)], "transformers")
        if opened.source_tokenizer is not opened.tokenizer and (path / TARGET).is_dir():
            second = library.AutoTokenizer.from_pretrained(path / TARGET)
            _same_ids(opened.tokenizer, lambda text: _unframed(second, text), "transformers")
        rows, differences = _rows(opened), []
        for row in rows:
            differences.append(
                _apart(_scores(opened.model, row), _their_scores(opened.model, other, row), "transformers", row)
            )
            if not isinstance(opened.model, EncoderModel):
                _same_output(_greedy(opened.model, row), _their_greedy(opened.model, other, row), "transformers", row)
    return Agreement(
        f"transformers {library.__version__}", len(rows), max(differences), not isinstance(opened.model, EncoderModel)
    )


@torch.inference_mode()
def with_ctranslate2(opened: ModelFolder, path: Path) -> Agreement:
    """Compare greedy decoding of every sequence, and the log-probabilities of a random target, with CTranslate2."""
    library, model = ctranslate2.package(), opened.model
    assert isinstance(model, EncoderDecoder)
    config, differences, rows = model.config, [], _rows(opened)
    translator = library.Translator(str(path), device="cpu", compute_type="float32", inter_threads=1, intra_threads=1)
    never = opened.tokenizer.pieces(sorted({config.pad_id, config.bos_id} - {config.eos_id}))
    options = {"beam_size": 1, "max_decoding_length": _limit(model), "suppress_sequences": [[token] for token in never]}
    for row in rows:
        source = opened.source_tokenizer.pieces(row[:-1])
        hypothesis = translator.translate_batch([source], **options)[0].hypotheses[0]
        _same_output(opened.tokenizer.pieces(_greedy(model, row)), hypothesis, "CTranslate2", row)
        labels = [*_target(model, row)[0, 1:].tolist(), config.eos_id]
        log_probs = _scores(model, row)[0].log_softmax(-1)[range(len(labels)), labels]
        scored = translator.score_batch([source], [opened.tokenizer.pieces(labels[:-1])])[0]
        differences.append(_apart(log_probs, torch.tensor(scored.log_probs), "CTranslate2", row))
    return Agreement(f"ctranslate2 {library.__version__}", len(rows), max(differences), True)


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Suppress warnings and progress bars of transformers, which concern settings that heedful has written."""
    level, bars = library.logging.get_verbosity(), library.logging.is_progress_bar_enabled()
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        library.logging.set_verbosity(level)
        if bars:
            library.logging.enable_progress_bar()


def _transformers() -> Any:
    with explain_missing("conversion to huggingface, which compares its result with what transformers computes,"):
        import transformers
    return transformers


def _loaded(library: Any, opened: ModelFolder, path: Path) -> Any:
    name = architecture_for(opened.model.config).description(opened.model.config)["architectures"][0]
    model, info = getattr(library, name).from_pretrained(path, output_loading_info=True)
    if missing := sorted(info["missing_keys"]):
        raise FolderError(f"transformers finds no {missing[0]} in the converted model; the conversion is discarded.")
    return model.eval()


def _rows(opened: ModelFolder) -> list[list[int]]:
    """The ids of LINES and of random sequences, truncated to the maximum length of the model."""
    model, tokenizer = opened.model, opened.source_tokenizer
    config, draw = model.config, random.Random(1)
    if config.features:
        return [list(range(length)) for length in AUDIO_ROWS]
    room = max(1, config.max_length // 2 - 2)
    usable = _text_ids(tokenizer.vocab_size, config.pad_id, config.bos_id, config.eos_id, tokenizer.eos_id)
    random_rows = [[draw.choice(usable) for _ in range(length)] for length in RANDOM_ROWS]
    encoded = [ids for ids in tokenizer.encode_batch(LINES) if ids]
    rows = [ids[:room] for ids in encoded + random_rows]
    if isinstance(model, EncoderDecoder):
        return [[*ids, tokenizer.eos_id] for ids in rows]
    return [[config.bos_id, *ids, config.eos_id] for ids in rows] if isinstance(model, EncoderModel) else rows


def _text_ids(size: int, *special: int) -> list[int]:
    """Ids that are not special, unless there are no others."""
    return [number for number in range(size) if number not in special] or list(range(size))


def _target(model: EncoderDecoder, row: Sequence[int]) -> Tensor:
    """A random target for a source."""
    config, draw = model.config, random.Random(len(row))
    usable = _text_ids(config.vocab_size, config.pad_id, config.bos_id, config.eos_id)
    return torch.tensor([[config.bos_id, *(draw.choice(usable) for _ in row[1:])]])


def _source(model: EncoderDecoder, row: Sequence[int]) -> tuple[Tensor, Tensor]:
    """A source as the model reads it, and its length: ids, or noise as long as the longest recording."""
    config = model.config
    if not config.features:
        return torch.tensor([row]), torch.tensor([len(row)])
    length, generator = config.source_length, torch.Generator().manual_seed(len(row))
    frames = torch.randn(1, length * config.feature_stride, config.features, generator=generator)
    return frames, torch.tensor([length])


def _types(model: EncoderModel, row: Sequence[int]) -> Tensor:
    return (torch.arange(len(row)) % max(1, model.config.token_types)).unsqueeze(0)


@torch.inference_mode()
def _scores(model: EncoderDecoder | DecoderModel | EncoderModel, row: Sequence[int]) -> Tensor:
    if isinstance(model, EncoderDecoder):
        source, lengths = _source(model, row)
        return model.target_logits(source, _target(model, row), lengths)
    ids = torch.tensor([row])
    if isinstance(model, DecoderModel):
        return model.project(model(ids))
    hidden = model(ids, types=_types(model, row))
    if model.config.labels:
        return model.classify(hidden, torch.ones_like(ids, dtype=torch.bool))
    return hidden if model.config.head == "none" else model.project(hidden)


def _their_scores(model: EncoderDecoder | DecoderModel | EncoderModel, other: Any, row: Sequence[int]) -> Tensor:
    ids = torch.tensor([row])
    inputs: dict[str, Tensor] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if isinstance(model, EncoderDecoder) and model.config.features:
        inputs = {"input_features": _source(model, row)[0].transpose(1, 2)}
    if isinstance(model, EncoderDecoder):
        inputs["decoder_input_ids"] = _target(model, row)
    if isinstance(model, EncoderModel):
        inputs["token_type_ids"] = _types(model, row)
    output = other(**inputs)
    if model.config.labels and model.config.label_kind == "question-answering":
        return torch.stack((output.start_logits, output.end_logits), 2)
    scores: Tensor = output[0]
    return scores


def _limit(model: EncoderDecoder | DecoderModel) -> int:
    return min(LONGEST, model.config.max_length // 2)


@torch.inference_mode()
def _greedy(model: EncoderDecoder | DecoderModel, row: Sequence[int]) -> list[int]:
    if isinstance(model, EncoderDecoder):
        options = SearchOptions(beam=1, length_penalty=0.0, max_length=_limit(model), loop_guard=False)
        return list(beam_search(ModelNextToken(model), *_source(model, row), options)[0][0].ids)
    cache, ids, output = model.start(), torch.tensor([row]), []
    for _ in range(_limit(model)):
        logits = model.project(model.step(ids, cache))[0, -1]
        output.append(int(logits.argmax()))
        ids = torch.tensor([[output[-1]]])
        if output[-1] == model.config.eos_id:
            return output[:-1]
    return output


def _their_greedy(model: EncoderDecoder | DecoderModel, other: Any, row: Sequence[int]) -> list[int]:
    ids, config = torch.tensor([row]), model.config
    if isinstance(model, EncoderDecoder) and config.features:
        return _their_greedy_transcript(model, other, row)
    before = 1 if isinstance(model, EncoderDecoder) else len(row)
    none = {"forced_bos_token_id": None, "forced_eos_token_id": None, "min_length": 0, "no_repeat_ngram_size": 0}
    options = {"num_beams": 1, "do_sample": False, "max_length": before + _limit(model), **none}
    output = other.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)[0, before:].tolist()
    return output[: output.index(config.eos_id)] if config.eos_id in output else list(output)


def _their_greedy_transcript(model: EncoderDecoder, other: Any, row: Sequence[int]) -> list[int]:
    """Step by step: generate() of a Whisper model has rules of its own."""
    config, ids = model.config, [model.config.bos_id]
    never = sorted({config.bos_id, config.pad_id} - {config.eos_id})
    features = _source(model, row)[0].transpose(1, 2)
    while len(ids) <= _limit(model):
        logits = other(input_features=features, decoder_input_ids=torch.tensor([ids])).logits[0, -1]
        logits[never] = -torch.inf
        ids.append(int(logits.argmax()))
        if ids[-1] == config.eos_id:
            return ids[1:-1]
    return ids[1:]


def _unframed(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _same_ids(tokenizer: Tokenizer, other_result: Callable[[str], list[int]], other: str) -> None:
    for line in LINES:
        if tokenizer.encode(line) != other_result(line):
            raise FolderError(f"{other} tokenizes {line!r} differently; the conversion is discarded.")


def _same_output(result: Sequence[object], other_result: Sequence[object], other: str, row: Sequence[int]) -> None:
    if list(result) != list(other_result):
        raise FolderError(
            f"greedy decoding by {other} differs for a source of {len(row)} tokens; the conversion is discarded."
        )


def _apart(result: Tensor, other_result: Tensor, other: str, row: Sequence[int]) -> float:
    """The largest difference, which must be small."""
    difference = float((result - other_result).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(result.abs().max())):
        raise FolderError(
            f"outputs of {other} differ by up to {difference:.2g} for a sequence of {len(row)} tokens; "
            "the conversion is discarded."
        )
    return difference
