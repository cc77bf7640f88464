"""Denoising: an encoder-decoder restores a text whose spans are masked (BART's text infilling).

The model and its vocabulary are a start for summaries and for translators with few pairs. Infilling is chosen over
T5's span corruption as its target is the whole text: the decoder learns to write sentences and to copy from the source,
both of which a summary needs, and the vocabulary has one more token instead of a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Self

import numpy as np

from heedful.config import Family, RunConfig
from heedful.config.presets import DENOISING
from heedful.data.batch import Batch, collate
from heedful.data.blocks import held_out_blocks, read_blocks
from heedful.data.corpus import CorpusCache
from heedful.data.infilling import infill
from heedful.data.pairs import Ids, Pairs
from heedful.errors import SettingError
from heedful.storage.folder import ModelFolder
from heedful.training.losses import translation_loss
from heedful.training.run_report import Column
from heedful.training.tasks.summarization import MAX_SOURCE_LENGTH
from heedful.training.tasks.task import Indices, MicroBatches
from heedful.training.tasks.text_task import TextTask


class DenoisingTask(TextTask):
    """Text in blocks, corrupted; models are ranked by the loss on the validation text."""

    family: ClassVar[Family] = "encoder-decoder"
    folder_task: ClassVar[str] = "denoising"
    native_loss: ClassVar[bool] = True
    masked: ClassVar[bool] = True
    loss_function = staticmethod(translation_loss)
    columns = (Column("valid_loss", "loss", 4), Column("valid_perplexity", "perplexity"))

    @classmethod
    def open(cls, config: RunConfig, init: ModelFolder | None, cache: CorpusCache) -> Self:
        if init is not None and (init.tokenizer.mask_id is None or init.config.source_vocab_size is not None):
            raise SettingError(f"{init.path} has no mask token, or two vocabularies; leave train.init out.")
        return super().open(config, init, cache)

    def start_id(self) -> int:
        return self.corpus.tokenizer.bos_id

    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        """A new model has positions for the documents that it may learn to summarize."""
        train, model = user_config.train, user_config.model
        train = train.model_copy(update={k: v for k, v in DENOISING.items() if k not in train.model_fields_set})
        if init is None and "max_length" not in model.model_fields_set:
            model = model.model_copy(update={"max_length": max(train.block_size, MAX_SOURCE_LENGTH) + 1})
        return super().resolve(user_config.model_copy(update={"train": train, "model": model}), init)

    def prepare(self, config: RunConfig) -> None:
        super().prepare(config)
        self.share = config.train.infill_share

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        """The spans of a batch follow from the seed and the update; every rank draws those of the whole batch."""
        pairs = self._corrupted(self.corpus.train, batch, self.block, np.random.default_rng((self.seed, update)))
        tokens = len(batch) * (self.block + 1)  # each target ends in EOS
        return MicroBatches.of(tokens, np.arange(len(batch)), count, partial(self._collate, pairs))

    def validation(self) -> Iterator[Batch]:
        valid, random = self.corpus.valid, np.random.default_rng(0)
        for starts, length in held_out_blocks(len(valid) + 1, self.block, self.valid_tokens, self.batch_tokens):
            yield self._collate(self._corrupted(valid, starts, length, random), np.arange(len(starts)))

    def _corrupted(self, stream: Ids, starts: Indices, length: int, random: np.random.Generator) -> Pairs:
        mask = self.corpus.tokenizer.mask_id
        assert mask is not None
        rows = read_blocks(stream, starts, length)
        return Pairs.of([(infill(row, mask, self.share, random), row.tolist()) for row in rows])

    def _collate(self, pairs: Pairs, indices: Indices) -> Batch:
        return collate(pairs, indices, self.corpus.tokenizer.specials)
