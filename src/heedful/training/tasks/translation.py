"""Learning to translate: a target, given its source."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from heedful.config import Family, RunConfig, preset_for
from heedful.config.presets import GOING_ON, preset, weight_decay_for
from heedful.data.batch import Batch, collate
from heedful.data.bpe_dropout import BPEDropout, apply_bpe_dropout
from heedful.data.bucketing import micro_batches, plan_batches
from heedful.data.corpus import Accept, accept_any
from heedful.data.pairs import Pairs
from heedful.data.parallel_corpus import ParallelCorpus, prepare_parallel
from heedful.errors import SettingError
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer
from heedful.training.init.lsa import cached_singular_vectors, lsa_embeddings
from heedful.training.losses import translation_loss
from heedful.training.run_report import Column
from heedful.training.schedule import peak_rate
from heedful.training.tasks.task import Indices, MicroBatches, Progress, Scores, Task, layers, resolved_model


class TranslationTask(Task):
    """Sentence pairs; BLEU on the validation set decides, and the loss where it is equal."""

    family: ClassVar[Family] = "encoder-decoder"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("valid_loss", "loss", 3),
        Column("valid_perplexity", "perplexity"),
        Column("valid_bleu", "BLEU", percent=True),
        Column("valid_chrf", "chrF", percent=True),
    )
    suits_its_size_to_time: ClassVar[bool] = True

    def __init__(self, corpus: ParallelCorpus) -> None:
        self.corpus: ParallelCorpus = corpus
        self.batch_tokens, self.planned_tokens, self.seed, self.longest = 0, 0, 0, 0
        self.splits: tuple[BPEDropout, BPEDropout] | None = None

    @classmethod
    def open(
        cls, config: RunConfig, folder: Path, progress: Progress, init: ModelFolder | None, accept: Accept = accept_any
    ) -> TranslationTask:
        tokenizers = (init.source_tokenizer, init.tokenizer) if init else None
        return cls(prepare_parallel(config, folder, progress, tokenizers, accept))

    @classmethod
    def known(cls, asked: RunConfig) -> dict[str, Any]:
        return _lengths_and_ties(asked, asked.text.joint) | ({} if asked.text.joint else {"source_vocab_size": 1})

    def resolve(self, asked: RunConfig, init: ModelFolder | None) -> RunConfig:
        corpus = self.corpus
        name = asked.preset or preset_for(len(corpus.train))
        sections = preset("encoder-decoder", name, asked.model.architecture)
        tokens = int(corpus.train.target_lengths.sum()) + len(corpus.train)  # each target ends in one more token
        if init is not None:
            sections["train"] |= GOING_ON
        config = asked.with_defaults(sections, preset=name)
        if config.train.optimizer == "muon" and "weight_decay" not in asked.train.model_fields_set:
            decay = weight_decay_for(tokens / config.train.batch_tokens, peak_rate(config.train, config.model.d_model))
            config = config.replace(train={"weight_decay": decay})
        source, target = corpus.source_tokenizer, corpus.target_tokenizer
        found: dict[str, Any] = {
            "vocab_size": target.vocab_size,
            "source_vocab_size": None if corpus.joint else source.vocab_size,
            "pad_id": target.pad_id,
            "bos_id": target.bos_id,
            "eos_id": target.eos_id,
        } | _lengths_and_ties(asked, corpus.joint)
        config = config.replace(model=resolved_model(asked, init, "encoder-decoder", found))
        self._check_lengths(config.model.max_length)
        return config

    def prepare(self, config: RunConfig) -> None:
        self.batch_tokens = self.planned_tokens = config.train.batch_tokens
        self.seed, self.longest = config.train.seed, config.model.max_length - 1
        self.splits = None
        if config.train.bpe_dropout:
            self.splits = self._splits(config.train.bpe_dropout)
            sides = zip(self.splits, (self.corpus.train.sources, self.corpus.train.targets), strict=True)
            self.planned_tokens = int(self.batch_tokens / max(splits.growth(side) for splits, side in sides))

    def begin(self, model: Any, config: RunConfig) -> str:
        if config.train.embedding_init == "random":
            return ""
        sides = [each for each in (model.source_embedding, model.embedding) if each is not None]
        sizes = [len(each.weight) for each in sides]
        generator = torch.Generator().manual_seed(config.train.seed)
        found = lsa_embeddings(cached_singular_vectors(self.corpus, sizes, config.model.d_model), generator)
        for side, rows in zip(sides, torch.split(found, sizes), strict=True):
            side.weight.data.copy_(rows)
        return "embeddings begin with which tokens occur in the same pairs"

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        return self.corpus.target_tokenizer, self.corpus.source_tokenizer

    def plan(self, epoch: int) -> list[Indices]:
        train = self.corpus.train
        return plan_batches(train.source_lengths, train.target_lengths, self.planned_tokens, self.seed, epoch)

    def cut(self, batch: Indices, update: int, count: int) -> MicroBatches:
        pairs = self.corpus.train
        if self.splits is not None:
            random = np.random.default_rng((self.seed, update, 0))
            pairs, batch = apply_bpe_dropout(pairs, batch, self.splits, self.longest, random), np.arange(len(batch))
        tokens = int(pairs.target_lengths[batch].sum()) + len(batch)  # each target ends in one more token
        cut = [partial(self._collate, pairs, piece) if len(piece) else None for piece in micro_batches(batch, count)]
        return MicroBatches(tokens, cut)

    def loss(self, model: Any, piece: Any, smoothing: float = 0.0, negatives: int = 0) -> Loss:
        return translation_loss(model, piece, smoothing, negatives)

    def validation(self) -> Iterator[Batch]:
        valid = self.corpus.valid
        for indices in plan_batches(valid.source_lengths, valid.target_lengths, self.batch_tokens, 0, 0):
            yield self._collate(valid, indices)

    def rank(self, scores: Scores) -> list[float]:
        return [scores["valid_bleu"], -scores["valid_loss"]]

    def card(self, config: RunConfig, done: str, scores: Scores) -> str:
        model = config.model
        return (
            "---\nlibrary_name: heedful\npipeline_tag: translation\nmetrics:\n- bleu\n- chrf\n---\n\n"
            f"# A translator trained with heedful\n\nPreset {config.preset}: {layers(config)}, d_ff {model.d_ff}, "
            f"{model.n_heads} heads, {model.vocab_size:,} tokens.\n\n{done} On the validation set: "
            f"BLEU {scores['valid_bleu']:.2f}, chrF {scores['valid_chrf']:.2f}, loss {scores['valid_loss']:.3f}.\n\n"
            "Use it: `heedful translate FOLDER < text`, or `heedful.load(FOLDER).translate([...])` in Python.\n"
        )

    def _check_lengths(self, most: int) -> None:
        for name, pairs in (("training", self.corpus.train), ("validation", self.corpus.valid)):
            longest = 1 + max(int(side.max(initial=0)) for side in (pairs.source_lengths, pairs.target_lengths))
            if longest > most:
                raise SettingError(
                    f"a pair of the {name} set has {longest} tokens, and the model takes {most} (model.max_length); "
                    f"set data.max_length={most - 1}, or give the model more."
                )

    def _splits(self, rate: float) -> tuple[BPEDropout, BPEDropout]:
        source = BPEDropout.of(self.corpus.source_tokenizer, rate)
        target = source if self.corpus.joint else BPEDropout.of(self.corpus.target_tokenizer, rate)
        if source is None or target is None:
            raise SettingError(
                f"train.bpe_dropout is {rate:g}, but the vocabulary of this model was not made by merging pieces; "
                "set train.bpe_dropout=0."
            )
        return source, target

    def _collate(self, pairs: Pairs, indices: Indices) -> Batch:
        return collate(pairs, indices, self.corpus.source_tokenizer.specials, self.corpus.target_tokenizer.specials)


def _lengths_and_ties(asked: RunConfig, joint: bool) -> dict[str, Any]:
    """What follows from the longest pair and from the number of vocabularies, where it was left open."""
    found: dict[str, Any] = {} if joint or "tie" in asked.model.model_fields_set else {"tie": "target"}
    if "max_length" not in asked.model.model_fields_set:
        found["max_length"] = 2 * (asked.data.max_length + 1)  # twice the longest source, for its translation
    return found
