"""Which sentence a memory network reads at which hop."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from heedful.inside.recorded_run import RecordedRun
from heedful.model.baselines.memory_network import MemoryEncoder, sentence_numbers


@dataclass(frozen=True)
class MemorySentence:
    """A sentence of the text and its attention weight at each hop."""

    text: str
    weights: list[float]


def read_hops(run: RecordedRun) -> list[MemorySentence]:
    """The sentences before the question, in order; none if the model is no memory network."""
    model, side = run.folder.model, run.source
    if side is None or not isinstance(model.encoder, MemoryEncoder):
        return []
    ids = torch.tensor([side.ids])
    numbers = sentence_numbers(ids, ids != model.config.pad_id, model.config)[0]
    hops = [run.trace[f"encoder.{hop}.self.weights"][0, 0] for hop in range(model.config.encoder_layers)]  # (S) each
    sentences = []
    for number in range(1, int(numbers.max())):
        members = numbers == number
        text = run.folder.tokenizer.decode(ids[0, members].tolist())
        sentences.append(MemorySentence(text, [float(weights[members].sum()) for weights in hops]))
    return sentences


def hop_table(run: RecordedRun) -> list[str]:
    """The sentences as lines of text, the weights of all hops before each."""
    sentences = read_hops(run)
    if not sentences:
        return []
    header = "  ".join(f"hop {number}" for number, _ in enumerate(sentences[0].weights, 1))
    return [header, *("  ".join(f"{weight:5.2f}" for weight in each.weights) + f"  {each.text}" for each in sentences)]
