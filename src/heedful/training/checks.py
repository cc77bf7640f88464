"""Checks before a corpus is read: settings that contradict each other, and missing files.

Reading and encoding a corpus takes minutes, so everything that can be checked without it is checked first.
"""

from __future__ import annotations

import os

from heedful.config import DataSettings, RunConfig
from heedful.errors import SettingError
from heedful.formats.line_files import read_lines
from heedful.formats.pair_files import check_files
from heedful.storage.folder import ModelFolder
from heedful.storage.model_kind import model_kind
from heedful.text.vocabulary import BYTES, SPECIALS
from heedful.training.tasks.task import Task, resolved_model


def check_run(user_config: RunConfig, kind: type[Task], init: ModelFolder | None) -> None:
    """Refuse a new run that would fail with any corpus."""
    check_files(user_config.data)
    _check_languages(user_config.data)
    if user_config.train.pretrained_embeddings:
        next(read_lines(user_config.train.pretrained_embeddings), None)
    _check_text(user_config, init)
    if init is not None and bool(init.config.features) != kind.reads_audio:
        wanted = "a speech recognizer" if kind.reads_audio else "a model of text"
        title = model_kind(init.config, init.task).title
        raise SettingError(f"{init.path} holds {title}; start from {wanted}, or leave out train.init.")
    resolved_model(user_config, init, kind.family, {})
    if init is not None:
        check_options(user_config.replace(model=init.config.model_dump()), kind)
        return
    problems = []
    for name in (user_config.preset,) if user_config.preset else kind.possible_presets(user_config.data):
        try:
            config = user_config.with_defaults(kind.preset(name, user_config), preset=name)
            check_options(config.replace(model={"family": kind.family} | kind.known(user_config)), kind)
            return  # at least one preset fits the settings
        except SettingError as problem:
            problems.append(problem)
    raise problems[0]


def check_options(config: RunConfig, kind: type[Task]) -> None:
    """Refuse training options that the task or the model does not support."""
    train, model = config.train, config.model
    if kind.family != "encoder-decoder":
        for name in ("bpe_dropout", "rdrop"):
            if getattr(train, name):
                raise SettingError(
                    f"train.{name} is for a translator, and this run trains another model; leave it out."
                )
        if train.embedding_init == "lsa":
            raise SettingError("train.embedding_init is 'lsa', which only a translator supports; leave it out.")
    translates = kind.family == "encoder-decoder" and config.task in (None, "translation")
    if train.glossary_augmentation and not (translates and config.text.joint):
        raise SettingError(
            f"train.glossary_augmentation is {train.glossary_augmentation:g}, which only a translator with a joint "
            "vocabulary supports; leave it out."
        )
    check_speech_options(config)
    for name in ("act_halting", "experts", "pointer"):
        if train.rdrop and getattr(model, name):
            raise SettingError(f"train.rdrop does not work with model.{name}; leave one of them out.")
    if model.norm == "batch" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingError(
            "model.norm is batch, whose running statistics are those of one process; train with one process, or set "
            "model.norm=layer."
        )
    if model.positions == "syntax" and not config.data.trees:
        raise SettingError(
            "model.positions is syntax, but there are no trees; give CoNLL-U files of source sentences in data.trees."
        )
    if config.data.trees and model.positions != "syntax":
        raise SettingError(
            f"data.trees has no effect with {model.positions} positions; leave it out, or set model.positions=syntax."
        )
    if kind.guesses_tokens and model.one_state:
        setting = "sentence_input" if model.sentence_input else "architecture=memory-network"
        raise SettingError(
            f"model.{setting} has one state for a whole text and predicts no masked tokens; leave it out, or set task "
            "to classification."
        )
    if kind.guesses_tokens and model.head == "none":
        raise SettingError("model.head is none, but a BERT predicts tokens; set it to linear or transform.")


def check_speech_options(config: RunConfig) -> None:
    """Refuse options of a translator in the training of a speech recognizer, and the other way round."""
    train, speech = config.train, bool(config.model.features)
    of_text, of_speech = (
        ("rdrop", "bpe_dropout", "sampled_softmax", "glossary_augmentation"),
        ("ctc_weight", "freq_masks", "time_masks"),
    )
    for name in of_text if speech else of_speech:
        if getattr(train, name):
            kind = "a speech recognizer" if speech else "a model of text"
            raise SettingError(f"train.{name} is {getattr(train, name)}, but this run trains {kind}; leave it out.")
    if speech and train.embedding_init == "lsa":
        raise SettingError("train.embedding_init is 'lsa', which only a translator supports; leave it out.")


def _check_languages(data: DataSettings) -> None:
    """Refuse languages that would have no effect: they choose what is read from pairs, and both name the model's."""
    given = {name: language for name in ("source_language", "target_language") if (language := getattr(data, name))}
    for name, language in given.items():
        if data.text or data.labeled or data.audio:
            raise SettingError(f"data.{name} is {language}, but only pairs have languages; leave it out.")
        if data.source and len(given) == 1 and not data.valid_pairs:
            other = "target_language" if name == "source_language" else "source_language"
            raise SettingError(
                f"data.{name} is {language} without data.{other}; for line-aligned files they only name the languages"
                " of the model: give both, or none."
            )


def _check_text(user_config: RunConfig, init: ModelFolder | None) -> None:
    """Refuse an impossible vocabulary size, or one that is not that of the `init` folder."""
    size, kind = user_config.text.vocab_size, user_config.text.kind
    if size is None:
        return
    if init is not None:
        if size != init.tokenizer.vocab_size:
            raise SettingError(
                f"text.vocab_size is {size}, and the vocabulary of {init.path}, which is kept, has "
                f"{init.tokenizer.vocab_size} tokens; leave it out to train that model further."
            )
        return
    if kind != "bpe":
        raise SettingError(
            f"text.vocab_size is {size}, but text.kind={kind} has as many tokens as there are {kind}; leave it out."
        )
    least = len(SPECIALS) + len(BYTES)
    if size < least:
        raise SettingError(
            f"text.vocab_size is {size}, but special tokens and bytes alone take {least}; set a larger one."
        )
