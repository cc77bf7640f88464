"""Which sentence a memory network, or a Transformer that reads sentences, attends to at which hop.

In a language model the memories are tokens.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from heedful.inside.recorded_run import RecordedRun
from heedful.model.baselines.memory_network import MemoryDecoder, MemoryEncoder
from heedful.model.sentences import sentence_numbers
from heedful.model.transformer import DecoderModel, EncoderModel


@dataclass(frozen=True)
class MemorySentence:
    """A sentence of the text, or a token, and its attention weight at each hop."""

    text: str
    weights: list[float]


@torch.inference_mode()
def hops(run: RecordedRun) -> dict[str, Any] | None:
    """What the page shows: each sentence with its weights, the question and the answer."""
    model = run.folder.model
    if not isinstance(model, EncoderModel) or not (sentences := read_hops(run)):
        return None
    answer = None
    if model.classifier is not None:
        state = run.hidden[None, :1]  # that of the question
        answer = model.config.labels[int(model.classify(state, torch.ones(1, 1, dtype=torch.bool))[0].argmax())]
    return {"sentences": [asdict(sentence) for sentence in sentences], "question": _question(run), "answer": answer}


def read_hops(run: RecordedRun) -> list[MemorySentence]:
    """The sentences in order; none if the model does not read sentences.

    In a memory network the question weighs the sentences before it; in a Transformer it is one of them.
    """
    model, side = run.folder.model, run.source
    if isinstance(model, DecoderModel) and isinstance(model.decoder, MemoryDecoder):
        return _read_tokens(run)
    if side is None or not isinstance(model, EncoderModel):
        return []
    if model.config.sentence_input:
        steps = [run.trace[name] for name in _weight_names(run) if name in run.trace]  # (H, M, M); ACT may halt early
        weights = torch.stack([heads.mean(0)[0] for heads in steps], 1)  # (M, steps): of the question, over all heads
        sentences = [MemorySentence(text, row) for text, row in zip(side.pieces, weights.tolist(), strict=True)]
        return sentences[::-1]
    if not isinstance(model.encoder, MemoryEncoder):
        return []
    ids = torch.tensor([side.ids])
    numbers = sentence_numbers(ids, ids != model.config.pad_id, model.config)[0]
    by_hop = torch.stack([run.trace[name][0, 0] for name in _weight_names(run)], 1)  # (S, hops)
    members = [numbers == number for number in range(1, int(numbers.max()))]
    return [
        MemorySentence(run.folder.tokenizer.decode(ids[0, member].tolist()), by_hop[member].sum(0).tolist())
        for member in members
    ]


def _read_tokens(run: RecordedRun) -> list[MemorySentence]:
    """The tokens that a language model reads when it predicts the first token after the text."""
    assert run.target is not None
    config, tokenizer = run.folder.model.config, run.folder.tokenizer
    last = min(len(tokenizer.encode(run.text)), len(run.target.ids)) - 1
    first = max(0, last + 1 - config.memory_size)
    names = [f"decoder.{layer}.self.weights" for layer in range(config.decoder_layers)]
    weights = torch.stack([run.trace[name][0, last, first : last + 1] for name in names], 1)  # (N, hops)
    pieces = run.target.pieces[first : last + 1]
    return [MemorySentence(text, row) for text, row in zip(pieces, weights.tolist(), strict=True)]


def _weight_names(run: RecordedRun) -> list[str]:
    return [f"encoder.{layer}.self.weights" for layer in range(run.folder.model.config.encoder_layers)]


def _question(run: RecordedRun) -> str:
    """The last sentence of the text."""
    assert run.source is not None
    config = run.folder.model.config
    if config.sentence_input:
        return run.source.pieces[0]
    ids = torch.tensor([run.source.ids])
    numbers = sentence_numbers(ids, ids != config.pad_id, config)[0]
    return run.folder.tokenizer.decode(ids[0, numbers == numbers.max()].tolist())


def hop_table(run: RecordedRun) -> list[str]:
    """The sentences, or the tokens, as lines of text, the weights of all hops before each."""
    sentences = read_hops(run)
    if not sentences:
        return []
    header = "  ".join(f"hop {number}" for number, _ in enumerate(sentences[0].weights, 1))
    return [
        header,
        *("  ".join(f"{weight:5.2f}" for weight in sentence.weights) + f"  {sentence.text}" for sentence in sentences),
    ]
