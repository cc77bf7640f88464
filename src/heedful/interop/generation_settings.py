"""generation_config.json of transformers <-> search settings.

Lengths of transformers count the decoder's start token; heedful's do not.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from heedful.config import ModelConfig, SearchSettings, validate_section
from heedful.errors import FolderError, SettingError
from heedful.files import read_json
from heedful.inference.whisper_tokens import WhisperTokens
from heedful.interop.untrusted import ForeignConfig
from heedful.storage import folder
from heedful.storage.folder import ModelFolder

LONGEST_PENALTY = 10  # the limit of search.length_penalty
STOPPING = "early_stopping"
WRITTEN = {"n-best": "never", "beam": False, "first": True}  # early_stopping of heedful -> of transformers

log = logging.getLogger("heedful")


def read_search(path: Path, description: dict[str, Any], config: ModelConfig) -> SearchSettings:
    """The search settings of a folder: those of generation_config.json, or else those in its config.json."""
    generation = read_json(path, folder.SEARCH)
    where = path / (folder.CONFIG if generation is None else folder.SEARCH)
    foreign = ForeignConfig(description if generation is None else generation, where)
    values: dict[str, Any] = {"beam": foreign.integer("num_beams", 1, most=1000)}
    if config.family == "encoder-decoder" and not config.features:
        values |= _lengths(foreign, config) | _ranking(foreign, values["beam"])
        values["no_repeat_ngram"] = foreign.integer("no_repeat_ngram_size", 0, least=0)
        if foreign.has("forced_bos_token_id"):
            values["first_token"] = foreign.integer("forced_bos_token_id", least=0, most=config.vocab_size - 1)
    try:
        return validate_section(SearchSettings, values)
    except SettingError as error:
        raise FolderError(f"{where}: {error}") from None


def _lengths(foreign: ForeignConfig, config: ModelConfig) -> dict[str, int]:
    """The limits of the output; a maximum that is the model's own says nothing about outputs, and is not read.

    At the maximum, transformers replaces the last token by `forced_eos_token_id`: these outputs are one token shorter.
    """
    lengths = {"min_length": max(0, foreign.integer("min_length", 0, least=0) - 1)}
    if foreign.has("min_new_tokens"):
        lengths["min_length"] = max(lengths["min_length"], foreign.integer("min_new_tokens", least=0))
    if foreign.has("max_new_tokens"):
        longest = foreign.integer("max_new_tokens")
    else:
        longest = foreign.integer("max_length", config.max_length) - 1
    if longest < config.max_length - 1:
        lengths["max_length"] = max(1, longest - foreign.has("forced_eos_token_id"))
        lengths["min_length"] = min(lengths.values())
    return lengths


def _ranking(foreign: ForeignConfig, beam: int) -> dict[str, Any]:
    """How beam search ranks hypotheses and when it ends; nothing if the folder asks for neither beams nor a penalty."""
    if beam == 1 and not foreign.has("length_penalty"):
        return {}
    power, stopping = foreign.number("length_penalty", 1.0, least=-1000.0, below=1000.0), foreign.values.get(STOPPING)
    alpha = min(max(power, 0.0), LONGEST_PENALTY)
    unlike = [f"length_penalty={power:g} is read as {alpha:g}"] * (alpha != power)
    unlike += ["early_stopping=never is read as the n best"] * (stopping == "never" and alpha > 0)
    if beam > 1 and unlike:
        log.warning(
            f"{foreign.where}: {' and '.join(unlike)}, so that a beam search may choose other hypotheses than "
            "transformers does."
        )
    early = "n-best" if stopping == "never" else "first" if stopping is True else "beam"
    return {"length_penalty": alpha, "length_penalty_form": "power", STOPPING: early}


def write_search(opened: ModelFolder) -> dict[str, Any]:
    """generation_config.json, limited to what both libraries compute alike: not beams with GNMT's length penalty."""
    config, search = opened.model.config, opened.search
    if config.family == "encoder":
        return {}
    ids = {"pad_token_id": config.pad_id, "eos_token_id": config.eos_id, "bos_token_id": config.bos_id}
    if config.family == "decoder":
        return ids
    never = sorted({config.pad_id, config.bos_id} - {config.eos_id})
    start = {"decoder_start_token_id": config.bos_id, "forced_eos_token_id": config.eos_id}
    wide = {"num_beams": search.beam, "length_penalty": search.length_penalty, STOPPING: WRITTEN[search.early_stopping]}
    alike = search.length_penalty == 0 or (search.length_penalty_form == "power" and search.early_stopping != "n-best")
    beam = wide if search.beam > 1 and alike else {"num_beams": 1}
    common = ids | start | {"bad_words_ids": [[number] for number in never]} | _written_limits(search, config) | beam
    tokens = WhisperTokens.of(opened.tokenizer, config.vocab_size) if config.features else None
    return common if tokens is None else common | _whisper_tokens(tokens)


def _written_limits(search: SearchSettings, config: ModelConfig) -> dict[str, int]:
    """The inverse of what `read_search` makes of lengths, n-grams and the first token."""
    longest = config.max_length if search.max_length is None else min(config.max_length, search.max_length + 2)
    limits = {"max_length": longest}
    if search.min_length:
        limits["min_length"] = search.min_length + 1
    if search.no_repeat_ngram:
        limits["no_repeat_ngram_size"] = search.no_repeat_ngram
    if search.first_token is not None:
        limits["forced_bos_token_id"] = search.first_token
    return limits


def _whisper_tokens(tokens: WhisperTokens) -> dict[str, Any]:
    """What Whisper's folders say about its special tokens; without it, transformers writes empty transcripts."""
    settings: dict[str, Any] = {
        "suppress_tokens": list(tokens.suppressed),
        "begin_suppress_tokens": list(tokens.blank),
        "no_timestamps_token_id": tokens.no_timestamps,
        "is_multilingual": bool(tokens.languages),
        "return_timestamps": False,
    }
    if tokens.languages:
        settings["lang_to_id"] = {f"<|{code}|>": number for code, number in tokens.languages.items()}
        settings["task_to_id"] = {"transcribe": tokens.transcribe}
    return settings
