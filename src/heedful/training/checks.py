"""What is refused before a corpus is read: settings that contradict each other, and files that are not there.

Reading and encoding a corpus takes minutes, so all that can be known without it is looked at first.
"""

from __future__ import annotations

from heedful.config import Preset, RunConfig
from heedful.errors import SettingError
from heedful.formats.line_files import check_files, read_lines
from heedful.storage.folder import ModelFolder
from heedful.text.vocabulary import BYTES, SPECIALS
from heedful.training.tasks.task import Task, resolved_model

CHOSEN: tuple[Preset, ...] = ("tiny", "small", "base")  # the presets that are chosen from a corpus


def check_run(asked: RunConfig, kind: type[Task], init: ModelFolder | None) -> None:
    """Refuse a new run that cannot begin, whatever its corpus holds."""
    check_files(asked.data)
    if asked.train.pretrained_embeddings:
        next(read_lines(asked.train.pretrained_embeddings), None)
    _check_text(asked, init)
    resolved_model(asked, init, kind.family, {})
    if init is not None:
        check_reading(asked.replace(model=init.config.model_dump()), kind)
        return
    problems = []
    for name in (asked.preset,) if asked.preset else CHOSEN:
        try:
            config = asked.with_preset(name, kind.family)
            check_reading(config.replace(model={"family": kind.family} | kind.known(asked)), kind)
            return  # at least one preset goes with what is asked for
        except SettingError as problem:
            problems.append(problem)
    raise problems[0]


def check_reading(config: RunConfig, kind: type[Task]) -> None:
    """Refuse ways of learning that do not go with the task or with the model."""
    train, model = config.train, config.model
    if kind.family != "encoder-decoder":
        for name in ("bpe_dropout", "rdrop"):
            if getattr(train, name):
                raise SettingError(
                    f"train.{name} is for a translator, and this run trains another model; leave it out."
                )
        if train.embedding_init == "lsa":
            raise SettingError("train.embedding_init is 'lsa', which only a translator learns from; leave it out.")
    if train.rdrop and model.act_halting:
        raise SettingError("train.rdrop does not go with model.act_halting; leave one of them out.")
    if kind.guesses_tokens and model.head == "none":
        raise SettingError("model.head is none, but a BERT has to guess tokens; set it to linear or transform.")


def _check_text(asked: RunConfig, init: ModelFolder | None) -> None:
    """Refuse sizes that no vocabulary can have."""
    size, kind = asked.text.vocab_size, asked.text.kind
    if init is not None or size is None:
        return
    if kind != "bpe":
        raise SettingError(
            f"text.vocab_size is {size}, but text.kind={kind} has as many tokens as there are {kind}; leave it out."
        )
    least = len(SPECIALS) + len(BYTES)
    if size < least:
        raise SettingError(f"text.vocab_size is {size}, but special tokens and bytes alone take {least}; ask for more.")
