"""Which sentence a memory network reads at which hop."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from heedful.inside.recorded_run import RecordedRun
from heedful.model.baselines.memory_network import MemoryEncoder, sentence_numbers
from heedful.model.transformer import EncoderModel


@dataclass(frozen=True)
class MemorySentence:
    """A sentence of the text and its attention weight at each hop."""

    text: str
    weights: list[float]


@torch.inference_mode()
def hops(run: RecordedRun) -> dict[str, Any] | None:
    """What the page shows of a memory network: each sentence with its weights, the question and the answer."""
    model, side = run.folder.model, run.source
    if side is None or not isinstance(model, EncoderModel) or not (sentences := read_hops(run)):
        return None
    answer = None
    if model.classifier is not None:
        logits = model.classify(run.hidden[None], torch.ones(1, len(side.ids), dtype=torch.bool))[0]
        answer = model.config.labels[int(logits.argmax())]
    ids, numbers = _numbered(run)
    question = run.folder.tokenizer.decode(ids[numbers == numbers.max()].tolist())
    return {"sentences": [asdict(sentence) for sentence in sentences], "question": question, "answer": answer}


def read_hops(run: RecordedRun) -> list[MemorySentence]:
    """The sentences before the question, in order; none if the model is no memory network."""
    model, side = run.folder.model, run.source
    if side is None or not isinstance(model, EncoderModel) or not isinstance(model.encoder, MemoryEncoder):
        return []
    ids, numbers = _numbered(run)
    weights_of_hops = [
        run.trace[f"encoder.{hop}.self.weights"][0, 0] for hop in range(model.config.encoder_layers)
    ]  # (S)
    sentences = []
    for number in range(1, int(numbers.max())):
        members = numbers == number
        text = run.folder.tokenizer.decode(ids[members].tolist())
        sentences.append(MemorySentence(text, [float(weights[members].sum()) for weights in weights_of_hops]))
    return sentences


def _numbered(run: RecordedRun) -> tuple[Tensor, Tensor]:
    """(S) twice: the tokens, and the number of the sentence that each belongs to."""
    assert run.source is not None
    ids, config = torch.tensor([run.source.ids]), run.folder.model.config
    return ids[0], sentence_numbers(ids, ids != config.pad_id, config)[0]


def hop_table(run: RecordedRun) -> list[str]:
    """The sentences as lines of text, the weights of all hops before each."""
    sentences = read_hops(run)
    if not sentences:
        return []
    header = "  ".join(f"hop {number}" for number, _ in enumerate(sentences[0].weights, 1))
    return [
        header,
        *("  ".join(f"{weight:5.2f}" for weight in sentence.weights) + f"  {sentence.text}" for sentence in sentences),
    ]
