"""Masked language modeling: an encoder predicts masked tokens from both sides of their context (a BERT)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import numpy as np

from heedful.config import Family, RunConfig
from heedful.data.blocks import held_out_blocks, read_blocks
from heedful.data.corpus import CorpusCache
from heedful.data.masking import MaskedBatch, Masking, add_special_tokens
from heedful.data.pairs import Ids
from heedful.errors import SettingError
from heedful.inference.encoder import Encoder
from heedful.storage.folder import ModelFolder
from heedful.training.losses import masked_loss
from heedful.training.run_report import Column
from heedful.training.tasks.task import Indices, MicroBatches, device_of
from heedful.training.tasks.text_task import TextTask

FRAME = 2  # [CLS] and [SEP] around the text of a block


class MaskedLMTask(TextTask):
    """Text in blocks with masked tokens; models are ranked by the loss on the validation text."""

    family: ClassVar[Family] = "encoder"
    native_loss: ClassVar[bool] = True
    guesses_tokens: ClassVar[bool] = True
    masked: ClassVar[bool] = True
    frame: ClassVar[int] = FRAME
    loss_function = staticmethod(masked_loss)
    columns = (
        Column("valid_loss", "loss", 4),
        Column("valid_perplexity", "perplexity"),
    )

    @classmethod
    def open(cls, config: RunConfig, init: ModelFolder | None, cache: CorpusCache) -> Self:
        if init is not None and init.tokenizer.mask_id is None:
            raise SettingError(f"{init.path} has no mask token; give a BERT as train.init.")
        return super().open(config, init, cache)

    def prepare(self, config: RunConfig) -> None:
        super().prepare(config)
        self.pairs = config.model.token_types > 1
        self.masking = Masking.of(self.corpus.tokenizer, config.train.mask_prob, config.train.whole_words)

    def start_id(self) -> int:
        return self.corpus.tokenizer.bos_id

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        """Every rank masks the whole batch, so that all agree on the number of masked tokens."""
        random = np.random.default_rng((self.seed, update, FRAME))
        whole = self._masked(self.corpus.train, batch, self.block - FRAME, random)
        return MicroBatches.of(whole.tokens, np.arange(len(batch)), count, whole.rows)

    def validation(self) -> Iterator[MaskedBatch]:
        valid, text = self.corpus.valid, self.block - FRAME
        random = np.random.default_rng(0)
        for starts, length in held_out_blocks(len(valid) + 1, text, self.valid_tokens, 4 * self.micro_batch_tokens):
            yield self._masked(valid, starts, length, random)

    def show(self, folder: ModelFolder) -> list[str]:
        """Predictions for one masked word in the first words of the validation text."""
        encoder = Encoder(folder, device=device_of(folder))
        words = encoder.tokenizer.decode(self.corpus.valid[: min(24, self.block - 3)].tolist()).split()
        if len(words) < 3:
            return []
        masked_word = words[len(words) // 2]
        words[len(words) // 2] = "[MASK]"
        predictions = encoder.fill_mask(" ".join(words), top=3)[0]
        likely = ", ".join(f"{prediction.token} {prediction.probability:.2f}" for prediction in predictions)
        return [" ".join(words), f"masked word {masked_word!r}; predicted: {likely}"]

    def _masked(self, stream: Ids, starts: Indices, length: int, random: np.random.Generator) -> MaskedBatch:
        content = read_blocks(stream, starts, length)
        return self.masking.apply(
            *add_special_tokens(content, self.corpus.tokenizer.specials, self.pairs, random), random
        )
