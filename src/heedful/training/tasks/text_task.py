"""What tasks on plain text share: the corpus, and settings that follow from its size and vocabulary."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

from heedful.config import Preset, RunConfig
from heedful.config.presets import TOKENS, preset_for
from heedful.data.blocks import plan_blocks
from heedful.data.corpus import CorpusCache
from heedful.data.text_corpus import TextCorpus, prepare_text
from heedful.storage.folder import ModelFolder
from heedful.training.tasks.task import Indices, Task, resolved_model, vocabulary_settings


class TextTask(Task):
    """Text in blocks of tokens."""

    masked: ClassVar[bool] = False  # whether the vocabulary has a mask token
    frame: ClassVar[int] = 0  # special tokens around the text of a block

    def __init__(self, corpus: TextCorpus) -> None:
        self.corpus: TextCorpus = corpus
        self.block = self.batch_tokens = self.micro_batch_tokens = self.seed = self.valid_tokens = 0

    @classmethod
    def open(cls, config: RunConfig, init: ModelFolder | None, cache: CorpusCache) -> Self:
        return cls(prepare_text(config, *cache, init.tokenizer if init else None, cls.masked))

    @abstractmethod
    def start_id(self) -> int:
        """The token that a text begins with."""

    def preset_for_corpus(self) -> Preset:
        return preset_for(len(self.corpus.train), TOKENS)

    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        length, tokenizer = len(self.corpus.train), self.corpus.tokenizer
        config = user_config.with_preset(user_config.preset or self.preset_for_corpus(), self.family)
        block = min(config.train.block_size, length - 1 + self.frame)
        derived = vocabulary_settings(tokenizer) | {"bos_id": self.start_id()}
        if "max_length" not in user_config.model.model_fields_set:
            derived["max_length"] = max(block, 2)
        model = resolved_model(user_config, init, self.family, derived)
        longest = model.get("max_length", config.model.max_length)
        return config.replace(model=model, train={"block_size": min(block, longest)})

    def prepare(self, config: RunConfig) -> None:
        self.config, train = config, config.train
        self.block, self.batch_tokens, self.seed = train.block_size, train.batch_tokens, train.seed
        self.micro_batch_tokens = max(1, train.batch_tokens // train.micro_batches)
        self.valid_tokens = train.valid_tokens

    def plan(self, epoch: int) -> list[Indices]:
        text = self.block - self.frame
        rows = max(1, self.batch_tokens // self.block)
        return plan_blocks(len(self.corpus.train), text, rows * text, self.seed, epoch)
