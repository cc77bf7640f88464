"""A BART of `transformers` trained with AdamW in float32, as most people would: a side of summarization.py.

    python benchmarks/bart_loop.py RUN train.tsv.gz test.tsv.gz --time 30m --threads 1 --rate 1e-3 --out summaries.json

RUN is a heedful model folder: BART has its sizes, its vocabulary and its number of tokens in an update. Linear layers
are initialized by Xavier's rule: with transformers' own deviation of 0.02, meant for a width of 1,024, a BART that is
128 wide ignores its source, and 64 pairs that it has seen 77 times get two summaries. Learning rate:
warm-up to --rate over 10 % of the time, then linear decay to zero. The time is CPU time divided by the number of
threads, so other programs on the machine do not shorten it. Training ends with it; `generate` writes the summaries with
a beam of 4, to the file --out. They have at least as many tokens as all but 5 % of the training summaries: beam search
with a model that has learned little would end every summary at once. Empty and different summaries are counted.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from transformers import BartConfig, BartForConditionalGeneration

from heedful.config import ModelConfig, parse_duration
from heedful.data.batch import collate
from heedful.data.bucketing import plan_batches
from heedful.data.pairs import Pairs, RaggedIds
from heedful.storage.folder import load_folder
from heedful.text.tokenizer import Tokenizer
from summaries import read_pairs

WARMUP, SMOOTHING = 0.1, 0.1
BATCH = 50  # documents that are summarized at once


def build_bart(config: ModelConfig) -> BartForConditionalGeneration:
    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=config.vocab_size, d_model=config.d_model, encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers, encoder_ffn_dim=config.d_ff, decoder_ffn_dim=config.d_ff,
            encoder_attention_heads=config.n_heads, decoder_attention_heads=config.n_heads, dropout=0.1,
            max_position_embeddings=config.max_length, pad_token_id=config.pad_id, bos_token_id=config.bos_id,
            eos_token_id=config.eos_id, decoder_start_token_id=config.bos_id, forced_eos_token_id=None,
        )
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "embed" not in name and "shared" not in name:
            torch.nn.init.xavier_uniform_(parameter)
    return model


def train(
    model: BartForConditionalGeneration, pairs: Pairs, tokenizer: Tokenizer, tokens: int, rate: float, seconds: float
) -> str:
    """Train for so long; a sentence on what was done."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    began, whole, epoch, updates, documents = time.process_time(), seconds * torch.get_num_threads(), 0, 0, 0
    while (passed := (time.process_time() - began) / whole) < 1:
        for rows in plan_batches(pairs.sources.lengths, pairs.targets.lengths, tokens, 1, epoch):
            if (passed := (time.process_time() - began) / whole) >= 1:
                break
            optimizer.param_groups[0]["lr"] = rate * min(1.0, passed / WARMUP, 1 - passed)
            batch = collate(pairs, np.asarray(rows), tokenizer.specials)
            logits = model(
                input_ids=batch.source, attention_mask=batch.source != tokenizer.pad_id,
                decoder_input_ids=batch.decoder_input,
            ).logits  # fmt: skip
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), batch.labels.flatten(), ignore_index=tokenizer.pad_id, label_smoothing=SMOOTHING
            )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            updates, documents = updates + 1, documents + len(rows)
            if updates % 200 == 0:
                print(
                    f"BART, rate {rate:g}: update {updates}, loss {loss.item():.3f}, {passed:.0%} of the time",
                    flush=True,
                )
        epoch += 1
    cpu = (time.process_time() - began) / 60
    return f"{updates:,} updates, {documents / len(pairs):.1f} passes, {cpu:.1f} minutes of computation"


def summarize(
    model: BartForConditionalGeneration, tokenizer: Tokenizer, documents: list[list[int]], shortest: int, longest: int
) -> list[str]:
    """The summaries of encoded documents, by beam search; documents of similar length are padded together."""
    order = sorted(range(len(documents)), key=lambda number: len(documents[number]))
    summaries = [""] * len(documents)
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        rows = [torch.tensor([*documents[number], tokenizer.eos_id]) for number in numbers]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_id)
        with torch.inference_mode():
            output = model.generate(
                ids, attention_mask=(ids != tokenizer.pad_id).long(), num_beams=4, min_new_tokens=shortest,
                max_length=longest + 1,
            )  # fmt: skip
        for number, row in zip(numbers, output[:, 1:].tolist(), strict=True):
            summaries[number] = tokenizer.decode([token for token in row if token != tokenizer.pad_id])
    return summaries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--time", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    folder = load_folder(arguments.run)
    run = json.loads((arguments.run / "run.json").read_text(encoding="utf-8"))["config"]
    tokenizer, longest = folder.tokenizer, folder.config.max_length - 1
    sides = zip(*read_pairs(arguments.train), strict=True)
    sources, targets = ([ids[:longest] for ids in tokenizer.encode_batch(list(side))] for side in sides)
    model = build_bart(folder.config).train()
    pairs = Pairs(RaggedIds.of(sources), RaggedIds.of(targets))
    tokens, seconds, name = (
        run["train"]["batch_tokens"],
        parse_duration(arguments.time),
        f"BART, rate {arguments.rate:g}",
    )
    print(f"{name}: {train(model, pairs, tokenizer, tokens, arguments.rate, seconds)}", flush=True)
    documents = [source for source, _ in read_pairs(arguments.test)[: arguments.documents]]
    ids = [row[:longest] for row in tokenizer.encode_batch(documents)]
    lengths = [len(target) for target in targets]
    summaries = summarize(model.eval(), tokenizer, ids, int(np.percentile(lengths, 5)), max(lengths))
    empty, different = sum(not summary.strip() for summary in summaries), len(set(summaries))
    print(f"{name}: {empty:,} of {len(summaries):,} summaries are empty, {different:,} are different", flush=True)
    arguments.out.write_text(json.dumps(summaries, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
