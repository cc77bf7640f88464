"""What is refused before a corpus is read: settings that contradict each other, and files that are not there.

Reading and encoding a corpus takes minutes, so all that can be known without it is looked at first.
"""

from __future__ import annotations

from heedful.config import Preset, RunConfig
from heedful.data.readers import read_lines
from heedful.data.store import check_files
from heedful.errors import SettingError
from heedful.folder import Folder
from heedful.text.vocabulary import BYTES, SPECIALS
from heedful.train.task import Task, resolved_model

CHOSEN: tuple[Preset, ...] = ("tiny", "small", "base")  # the presets that are chosen from a corpus


def check_run(asked: RunConfig, kind: type[Task], init: Folder | None) -> None:
    """Refuse a new run that cannot begin, whatever its corpus holds."""
    check_files(asked.data)
    if asked.train.vectors:
        next(read_lines(asked.train.vectors), None)
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
        for name in ("split", "consistency"):
            if getattr(train, name):
                raise SettingError(
                    f"train.{name} is for a translator, and this run trains another model; leave it out."
                )
        if train.embeddings == "pairs":
            raise SettingError("train.embeddings is 'pairs', which only a translator learns from; leave it out.")
    if train.consistency and model.halting:
        raise SettingError("train.consistency does not go with model.halting; leave one of them out.")
    if kind.guesses_tokens and model.head == "none":
        raise SettingError("model.head is none, but a BERT has to guess tokens; set it to linear or transform.")


def _check_text(asked: RunConfig, init: Folder | None) -> None:
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
