"""Language modeling: a decoder predicts each token given the tokens before it (a GPT)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import torch

from heedful.config import Family
from heedful.data.blocks import TokenBlocks, held_out_blocks, read_blocks
from heedful.data.pairs import Ids
from heedful.inference.generator import Generator
from heedful.storage.folder import ModelFolder
from heedful.training.losses import language_loss
from heedful.training.run_report import Column
from heedful.training.tasks.task import Indices, MicroBatches, Scores, device_of
from heedful.training.tasks.text_task import TextTask


class LanguageModelTask(TextTask):
    """Text in blocks of tokens; models are ranked by the loss on the validation text."""

    family: ClassVar[Family] = "decoder"
    native_loss: ClassVar[bool] = True
    loss_function = staticmethod(language_loss)
    columns = (
        Column("valid_loss", "loss", 4),
        Column("valid_perplexity", "perplexity"),
        Column("valid_bits_per_byte", "bits per byte", 3),
    )

    def start_id(self) -> int:
        return self.corpus.tokenizer.eos_id  # the end of a document is also the start of the next

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        build = partial(self._blocks, self.corpus.train, length=self.block)
        return MicroBatches.of(len(batch) * self.block, batch, count, build)

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
        generator = Generator(folder, device=device_of(folder))
        text = generator.generate(max_tokens=settings.sample, temperature=0.8, seed=settings.seed)
        return ["", *text.split("\n"), ""]

    def _blocks(self, stream: Ids, starts: Indices, length: int) -> TokenBlocks:
        return TokenBlocks(torch.from_numpy(read_blocks(stream, starts, length + 1)))
