"""Language modeling: a decoder predicts each token given the tokens before it (a GPT)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import torch

from heedful.config import Family, RunConfig
from heedful.data.blocks import TokenBlocks, held_out_blocks, plan_blocks, read_blocks
from heedful.data.bucketing import micro_batches
from heedful.data.pairs import Ids
from heedful.inference.generator import Generator
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder
from heedful.training.losses import language_loss
from heedful.training.run_report import Column
from heedful.training.tasks.task import Indices, MicroBatches, Scores, describe_layers
from heedful.training.tasks.text_task import TextTask


class LanguageModelTask(TextTask):
    """Text in blocks of tokens; models are ranked by the loss on the validation text."""

    family: ClassVar[Family] = "decoder"
    native_loss: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        Column("valid_loss", "loss", 4),
        Column("valid_perplexity", "perplexity"),
        Column("valid_bits_per_byte", "bits per byte", 3),
    )

    def start_id(self) -> int:
        return self.corpus.tokenizer.eos_id  # the end of a document is also the start of the next

    def plan(self, epoch: int) -> list[Indices]:
        return plan_blocks(len(self.corpus.train), self.block, self.batch_tokens, self.seed, epoch)

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        train = self.corpus.train
        builders = [
            partial(self._blocks, train, starts, self.block) if len(starts) else None
            for starts in micro_batches(batch, count)
        ]
        return MicroBatches(len(batch) * self.block, builders)

    def loss(self, model: Any, micro_batch: Any, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
        return language_loss(model, micro_batch, smoothing, sampled_softmax)

    def validation(self) -> Iterator[TokenBlocks]:
        valid = self.corpus.valid
        for starts, length in held_out_blocks(len(valid), self.block, self.valid_tokens, 4 * self.micro_batch_tokens):
            yield self._blocks(valid, starts, length)

    def scores(self, likelihood: float, tokens: int) -> Scores:
        """Loss, perplexity and bits per byte, which do not depend on the vocabulary; EOS counts as a byte."""
        size = self.corpus.report.valid_bytes / self.corpus.report.valid_tokens * tokens
        return super().scores(likelihood, tokens) | {"valid_bits_per_byte": likelihood / math.log(2) / size}

    def show(self, folder: ModelFolder) -> list[str]:
        """A sampled text of `train.sample` tokens."""
        settings = self.config.train
        if not settings.sample:
            return []
        generator = Generator(folder, device=str(next(folder.model.parameters()).device))
        text = generator.generate(max_tokens=settings.sample, temperature=0.8, seed=settings.seed)
        return ["", *text.split("\n"), ""]

    def card(self, config: RunConfig, done: str, scores: Scores) -> str:
        return (
            "---\nlibrary_name: heedful\npipeline_tag: text-generation\n---\n\n"
            f"# A language model trained with heedful\n\nPreset {config.preset}: {describe_layers(config)}, "
            f"{config.model.vocab_size:,} tokens ({config.text.kind}), {config.model.max_length} of them at once.\n\n"
            f"{done} On text that was held out: loss {scores['valid_loss']:.4f} a token, "
            f"{scores['valid_bits_per_byte']:.3f} bits per byte.\n\n"
            'Use it: `heedful generate FOLDER "Once"`, or `heedful.load(FOLDER).generate("Once")` in Python.\n'
        )

    def _blocks(self, stream: Ids, starts: Indices, length: int) -> TokenBlocks:
        return TokenBlocks(torch.from_numpy(read_blocks(stream, starts, length + 1)))
