"""Runs one text through a model and records all activations, for the page and the figures.

A translator translates first, and a GPT goes on with the text, by the same beam search that users get; then the result
is given to the model in one piece. The numbers of both are the same, and a test holds them equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from heedful.audio.log_mel import Frames
from heedful.config import SearchSettings
from heedful.errors import SettingError
from heedful.inference.encoder import MASK
from heedful.inference.record import Trace, activation_names, record
from heedful.inference.translator import Translator
from heedful.inside.beam_tree import BeamTree
from heedful.inside.tokens import TokenReader, TokenSide
from heedful.model.kv_cache import KVCache
from heedful.model.masks import not_padding
from heedful.model.transformer import DecoderModel, EncoderDecoder, EncoderModel, Model
from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer, split_long
from heedful.text.normalization import replace_surrogates

MOST_TOKENS = 2048  # of either side; more would not be readable, and a page of it would be huge
CONTINUED = 12  # tokens that a GPT adds to a text


@dataclass(frozen=True)
class RecordedSound:
    """Log-mel frames (T, F), the seconds of one position of the encoder, and which labels are text."""

    frames: Frames
    step: float
    text_rows: list[int]


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run. At position t a decoder reads `target.ids[t]` and predicts `labels[t]`."""

    folder: ModelFolder
    text: str
    output: str | None  # the translation, or what a GPT goes on with
    source: TokenSide | None  # what the encoder read
    target: TokenSide | None  # what the decoder read
    labels: list[int]  # what it wrote at each position, as far as it is known
    trace: dict[str, Tensor]  # everything recorded, without an axis for the sentence
    tree: BeamTree | None
    note: str = ""  # what the reader has to know about this run
    sound: RecordedSound | None = None  # of a speech recognizer

    @property
    def hidden(self) -> Tensor:
        """(T, D): the last hidden states, from which the logits are computed."""
        return self.trace["encoder" if self.target is None else "decoder"]

    @property
    def dependency_tree(self) -> Tensor | None:
        """(1, S, 2): the tree of the source, if the model has syntax positions and was given trees."""
        model = self.folder.model
        if not isinstance(model, EncoderDecoder) or model.trees is None or self.source is None:
            return None
        return model.trees(torch.tensor([self.source.ids]))

    def logits(self, start: int, end: int) -> Tensor:
        """-> (n, V): the logits at these positions."""
        model, hidden = self.folder.model, self.hidden[start:end]
        if not isinstance(model, EncoderDecoder) or model.pointer is None:
            return model.project(hidden).float()
        assert self.source is not None
        ids = torch.tensor([self.source.ids])
        copies = model.pointer.source(ids, self.trace["encoder"].unsqueeze(0), not_padding(ids, -1))
        return model.project(hidden, copies)


def kinds(model: Model) -> list[tuple[str, str, str, str, bool]]:
    """Attentions of a model: stack, kind, query side, key side, and whether it is causal.

    Not all systems have them, the weights of linformer attention are no shares, and those of an encoder of audio are
    too many to show.
    """
    config, known = model.config, activation_names(model)
    attention_kinds = [
        ("encoder", "self", "source", "source", False),
        ("decoder", "self", "target", "target", True),
        ("decoder", "cross", "target", "source", False),
    ]
    mixed = ("encoder", "self") if config.attention == "linformer" or config.features else ()
    return [kind for kind in attention_kinds if f"{kind[0]}.0.{kind[1]}.weights" in known and kind[:2] != mixed]


def record_run(folder: ModelFolder, text: str, target: str | None = None, **search: Any) -> RecordedRun:
    """Run a text through the model of a folder; `target` is an output to record instead of the model's own."""
    _check(folder)
    text, target = replace_surrogates(text), None if target is None else replace_surrogates(target)
    changed = {name: value for name, value in search.items() if name in SearchSettings.model_fields}
    folder = replace(folder, search=folder.search.model_copy(update=changed))
    match folder.model:
        case EncoderDecoder() if folder.config.features:
            from heedful.inside.recorded_speech import record_speech  # which builds on this module

            return record_speech(folder, text, target, search)
        case EncoderDecoder():
            return _translate(folder, text, target, search)
        case DecoderModel():
            return _continue(folder, text, target, search)
        case _:
            if target is not None or search:
                raise SettingError("an encoder generates no text; leave out the target and the search settings.")
            return _read(folder, text)


def _check(folder: ModelFolder) -> None:
    """Refuse models without attention, which is what the page and the figures show."""
    if not kinds(folder.model):
        raise SettingError(
            f"{folder.path} holds a model without any attention that could be shown; heedful.record shows its numbers."
        )


@torch.inference_mode()
def _translate(folder: ModelFolder, text: str, target: str | None, search: dict[str, Any]) -> RecordedRun:
    translator, tree = Translator([folder]), BeamTree()
    model = translator.modules[0]
    longest = min(max(1, model.config.max_length // 2 - 1), MOST_TOKENS)
    text, ids, note = _fitting(folder.source_tokenizer, text, longest)
    if target is None:
        translator.observer = tree
        translator.translations([text], **search)
        best = tree.hypotheses[0]
        written = [*best.ids, *([folder.tokenizer.eos_id] if best.finished else [])]
        output = folder.tokenizer.decode(best.ids)
    else:
        output, target_ids, cut = _fitting(folder.tokenizer, target, min(model.config.max_length - 1, MOST_TOKENS))
        note, written = note or cut, [*target_ids, folder.tokenizer.eos_id]
    source = [*ids, folder.source_tokenizer.eos_id]
    read = [folder.tokenizer.bos_id, *written[:-1]]
    with record(model, "*") as trace:
        model(torch.tensor([source]), torch.tensor([read]))
    return RecordedRun(
        folder,
        text,
        output,
        TokenReader(folder.source_tokenizer).side(source),
        TokenReader(folder.tokenizer).side(read),
        written,
        _plain(trace),
        None if target is not None else tree,
        note,
    )


@torch.inference_mode()
def _continue(folder: ModelFolder, text: str, target: str | None, search: dict[str, Any]) -> RecordedRun:
    assert isinstance(folder.model, DecoderModel)
    model, tokenizer, tree = folder.model.eval(), folder.tokenizer, BeamTree()
    text, prompt, note = _fitting(tokenizer, text, min(model.config.max_length - 1, MOST_TOKENS))
    room = model.config.max_length - len(prompt)
    if target is not None:
        written = tokenizer.encode(target)[:room]
    else:
        options = SearchOptions.of(folder.search, **{"max_length": min(CONTINUED, room)} | search | {"observer": tree})
        hypotheses = beam_search(Continuation(model, tokenizer, prompt), *_nothing(), options)
        tree.finish([0], [prompt], hypotheses)
        best = hypotheses[0][0]
        written = [*best.ids, *([tokenizer.eos_id] if best.finished else [])]
    read = [*prompt, *written][: -1 if written else None]
    with record(model, "*") as trace:
        model(torch.tensor([read]))
    output = tokenizer.decode([*prompt, *written])[len(tokenizer.decode(prompt)) :]
    side, labels = TokenReader(tokenizer).side(read), [*prompt[1:], *written]
    return RecordedRun(
        folder, text, output, None, side, labels, _plain(trace), None if target is not None else tree, note
    )


@torch.inference_mode()
def _read(folder: ModelFolder, text: str) -> RecordedRun:
    """Record an encoder; the text may contain [MASK] or <mask>, and a second text after a TAB."""
    assert isinstance(folder.model, EncoderModel)
    model, tokenizer = folder.model.eval(), folder.tokenizer
    longest = min(model.config.max_length - 2, MOST_TOKENS)
    text, _, second = text.partition("\t")
    others = [*tokenizer.encode(second), tokenizer.eos_id] if second.strip() else []
    longest = max(1, longest - len(others))
    mask = tokenizer.mask_id
    if mask is not None and MASK.search(text):
        ids: list[int] = []
        for number, part in enumerate(MASK.split(text)):
            ids += [mask] * bool(number) + (tokenizer.encode(part) if part.strip() else [])
        ids, note = ids[:longest], _note(len(ids), longest)
    else:
        text, ids, note = _fitting(tokenizer, text, longest)
    first = [tokenizer.bos_id, *ids, tokenizer.eos_id]
    read = [*first, *others]
    types = torch.tensor([[0] * len(first) + [int(model.config.token_types > 1)] * len(others)])
    with record(model, "*") as trace:
        model(torch.tensor([read]), types=types)
    reader = TokenReader(tokenizer)
    side = reader.sentences(read, model.config) if model.config.sentence_input else reader.side(read)
    return RecordedRun(folder, text, None, side, None, side.ids, _plain(trace), None, note)


class Continuation:
    """A GPT as a NextToken: the first step reads the whole prompt."""

    def __init__(self, model: DecoderModel, tokenizer: Tokenizer, prompt: list[int]) -> None:
        self.model, self.prompt = model, prompt
        self.bos_id, self.eos_id, self.pad_id = tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id
        self.vocab_size = model.config.vocab_size

    def start(self, source: Tensor, source_lengths: Tensor) -> KVCache:
        return self.model.start()

    def step(self, ids: Tensor, cache: Any) -> Tensor:
        read = ids.unsqueeze(1) if cache.length else torch.tensor([self.prompt])
        hidden = self.model.step(read, cache)[:, -1]  # (R, D)
        return self.model.project(hidden).float().log_softmax(-1)


def _plain(trace: Trace) -> dict[str, Tensor]:
    return {name: activation.as_subclass(Tensor) for name, activation in trace.sentence(0).items()}


def _nothing() -> tuple[Tensor, Tensor]:
    return torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long)


def _fitting(tokenizer: Tokenizer, text: str, longest: int) -> tuple[str, list[int], str]:
    """The text, cut to the maximum length; its ids; and a note if it was cut."""
    ids = tokenizer.encode(text)
    if not ids:
        raise SettingError("the text is empty; give a sentence to look at.")
    if len(ids) <= longest:
        return text, ids, ""
    text = split_long(tokenizer.normalize(text), lambda part: len(tokenizer.encode(part)) <= longest)[0].strip()
    return text, tokenizer.encode(text)[:longest], _note(len(ids), longest)


def _note(tokens: int, longest: int) -> str:
    if tokens <= longest:
        return ""
    return f"The text has {tokens:,} tokens; shown is its first part, since {longest:,} are the most that fit."
