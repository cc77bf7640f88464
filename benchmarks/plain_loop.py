"""A Marian model of `transformers` trained with AdamW in float32, as most people would: a side of training_speed.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import MarianConfig, MarianMTModel

from heedful.data.batch import collate
from heedful.data.bucketing import plan_batches
from heedful.data.pairs import Pairs, RaggedIds
from heedful.text.tokenizer import Tokenizer


def main() -> None:
    folder, size, updates, rate = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    tokenizer = Tokenizer.load(folder / "run" / "tokenizer.json")
    sides = [
        RaggedIds.of(tokenizer.encode_batch((folder / f"train.{language}").read_text(encoding="utf-8").splitlines()))
        for language in ("en", "de")
    ]
    config = MarianConfig(
        vocab_size=tokenizer.vocab_size, d_model=size["width"], encoder_layers=size["layers"],
        decoder_layers=size["layers"], encoder_attention_heads=size["heads"], decoder_attention_heads=size["heads"],
        encoder_ffn_dim=size["inner"], decoder_ffn_dim=size["inner"], dropout=size["dropout"],
        pad_token_id=tokenizer.pad_id, eos_token_id=tokenizer.eos_id, decoder_start_token_id=tokenizer.bos_id,
        scale_embedding=True, max_position_embeddings=512,
    )  # fmt: skip
    model = MarianMTModel(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    pairs = Pairs(*sides)
    batches = plan_batches(sides[0].lengths, sides[1].lengths, size["batch_tokens"], 1, 0)
    tokens, began = 0, time.perf_counter()
    for number, rows in enumerate(batches[:updates]):
        batch = collate(pairs, np.asarray(rows), tokenizer.specials)
        labels = batch.labels.masked_fill(batch.labels == tokenizer.pad_id, -100)
        logits = model(
            input_ids=batch.source, attention_mask=batch.source != tokenizer.pad_id,
            decoder_input_ids=batch.decoder_input,
        ).logits  # fmt: skip
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=0.1
        )
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        tokens += batch.tokens
        if (number + 1) % max(1, updates // 6) == 0:
            print(f"{tokens / (time.perf_counter() - began):.1f} target tokens/s", flush=True)
            tokens, began = 0, time.perf_counter()


if __name__ == "__main__":
    main()
