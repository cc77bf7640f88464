"""Updates of a BERT (masked language modeling) beside a plain loop of transformers, in one go: tokens a second.

    python benchmarks/bert_speed.py

Both train 4 layers, 4 heads, 256 wide, blocks of 128 in batches of 16, 15 % of the tokens masked, dropout 0.1 and AdamW
with gradient clipping, on random tokens. transformers computes in float32, as a plain loop does, and in bfloat16
(autocast). Sides alternate in short rounds. CPU seconds are printed beside wall seconds: on a machine that is busy,
only they can be compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from heedful.config import ModelConfig, TrainSettings
from heedful.data.masking import MaskedBatch
from heedful.model.transformer import build_model
from heedful.native.trainer import native_trainer
from heedful.training.step import Gradients, build_optimizer

LAYERS, HEADS, WIDTH, INNER, BLOCK, ROWS, VOCABULARY = 4, 4, 256, 1024, 128, 16, 8000
Update = Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=8, help="of each side in a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ids, chosen = blocks()
    sides = {
        "transformers float32": transformers_update(ids, chosen, torch.float32),
        "transformers bfloat16": transformers_update(ids, chosen, torch.bfloat16),
        "heedful": heedful_update(ids, chosen),
    }
    for update in sides.values():  # warm-up
        update()
    rounds = [{name: measure(update, options.updates) for name, update in sides.items()} for _ in range(options.rounds)]
    for kind, name in enumerate(("wall", "CPU")):
        report(name, [{side: times[kind] for side, times in round_times.items()} for round_times in rounds])


def blocks() -> tuple[Tensor, Tensor]:
    """(B, T) tokens, and which of them are predicted."""
    torch.manual_seed(1)
    return torch.randint(5, VOCABULARY, (ROWS, BLOCK)), torch.rand(ROWS, BLOCK) < 0.15


def transformers_update(ids: Tensor, chosen: Tensor, dtype: torch.dtype) -> Update:
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=INNER, max_position_embeddings=BLOCK,
    )  # fmt: skip
    model = BertForMaskedLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.1)
    inputs, labels = ids.masked_fill(chosen, 4), ids.masked_fill(~chosen, -100)

    def update() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = model(input_ids=inputs, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return update


def heedful_update(ids: Tensor, chosen: Tensor) -> Update:
    config = ModelConfig(
        family="encoder", vocab_size=VOCABULARY, d_model=WIDTH, d_ff=INNER, n_heads=HEADS, encoder_layers=LAYERS,
        max_length=BLOCK, positions="learned", activation="gelu", embedding_norm=True, token_types=2, head="transform",
        output_bias=True, scale_embedding=False, dropout=0.1, attention_dropout=0.1,
    )  # fmt: skip
    model = build_model(config).train()
    trainer = native_trainer(model, "auto")
    assert trainer is not None
    gradients, optimizer = Gradients(model), build_optimizer(model, TrainSettings(weight_decay=0.1))
    masked = MaskedBatch(ids.masked_fill(chosen, 4), torch.zeros_like(ids), ids, chosen, int(chosen.sum()))

    def update() -> None:
        gradients.clear()
        (trainer.loss(masked).smoothed / masked.tokens).backward()  # type: ignore[no-untyped-call]
        norm = float(gradients.weights.norm())
        if norm > 1:
            gradients.weights.mul_(1 / norm)
        optimizer.step(1e-4)

    return update


def measure(update: Update, count: int) -> tuple[float, float]:
    """Wall and CPU seconds of an update."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        update()
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


def report(kind: str, rounds: list[dict[str, float]]) -> None:
    tokens = ROWS * BLOCK
    for name in rounds[0]:
        print(f"{name:22} {tokens / statistics.median(times[name] for times in rounds):8,.0f} tokens per {kind} second")
    for peer in rounds[0].keys() - {"heedful"}:
        ratios = sorted(times[peer] / times["heedful"] for times in rounds)
        spread = f"from {ratios[0]:.2f} to {ratios[-1]:.2f}"
        print(f"heedful / {peer} by {kind} time: median {statistics.median(ratios):.2f}, {spread}")


if __name__ == "__main__":
    main()
