"""Constraints on Whisper's transcripts (Radford et al., 2022): tokens that are never written, and times that rise.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from heedful.inference.whisper_tokens import TIME_STEP, WhisperTokens
from heedful.search import RowConstraint

LATEST_START = 1.0  # seconds: the first time of a window is not later


class SuppressTokens(RowConstraint):
    """Forbid symbols and special tokens, and an empty transcript; `prompt` ids come before the first token."""

    def __init__(self, tokens: WhisperTokens, prompt: int) -> None:
        self.prompt, self.never, self.blank = prompt, np.array(tokens.suppressed), np.array(tokens.blank)

    def forbid(self, log_probs: npt.NDArray[Any], ids: Sequence[int]) -> None:
        log_probs[self.never] = -np.inf
        if len(ids) == self.prompt:
            log_probs[self.blank] = -np.inf


class TimestampRules(RowConstraint):
    """Times come in pairs around a text, never fall, and replace the text where they are more probable in all."""

    def __init__(self, tokens: WhisperTokens, prompt: int) -> None:
        self.prompt, self.first, self.eos = prompt, tokens.first_time, tokens.eos
        self.latest = tokens.first_time + round(LATEST_START / TIME_STEP)

    def forbid(self, log_probs: npt.NDArray[Any], ids: Sequence[int]) -> None:
        first, written = self.first, ids[self.prompt :]
        if not len(written):
            log_probs[:first] = log_probs[self.latest + 1 :] = -np.inf
            return
        last = written[-1] >= first
        before = len(written) < 2 or written[-2] >= first
        if last and before:  # after a pair comes text
            log_probs[first:] = -np.inf
        elif last:  # after an end, a start or eos
            log_probs[: self.eos] = -np.inf
        if times := [number for number in written if number >= first]:
            least = max(times) + (not last or before)  # a segment may start where the last one ended
            log_probs[first:least] = -np.inf
        text = log_probs[:first].max()
        with np.errstate(divide="ignore"):
            if np.log(np.exp(log_probs[first:] - text).sum()) > 0:
                log_probs[:first] = -np.inf
