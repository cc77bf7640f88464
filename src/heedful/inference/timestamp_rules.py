"""Constraints on Whisper's transcripts (Radford et al., 2022): tokens that are never written, and times that rise."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.inference.whisper_tokens import TIME_STEP, WhisperTokens
from heedful.search.options import Constraint

LATEST_START = 1.0  # seconds: the first time of a window is not later


def suppress(tokens: WhisperTokens, prompt: int) -> Constraint:
    """Forbid symbols and special tokens, and an empty transcript; `prompt` ids come before the first token."""
    never = torch.tensor(tokens.suppressed)
    blank = torch.tensor(tokens.blank)

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        log_probs.index_fill_(1, never.to(log_probs.device), -torch.inf)
        if prefix.size(1) == prompt:
            log_probs.index_fill_(1, blank.to(log_probs.device), -torch.inf)
        return log_probs

    return apply


def timestamp_rules(tokens: WhisperTokens, prompt: int) -> Constraint:
    """Times come in pairs around a text, never fall, and replace the text where they are more probable in all."""
    first, eos = tokens.first_time, tokens.eos
    latest = first + round(LATEST_START / TIME_STEP)

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        written = prefix[:, prompt:]  # (R, t)
        if written.size(1) == 0:
            log_probs[:, :first] = -torch.inf
            log_probs[:, latest + 1 :] = -torch.inf
            return log_probs
        last = written[:, -1] >= first  # (R,)
        before = written[:, -2] >= first if written.size(1) > 1 else torch.ones_like(last)
        log_probs[:, first:].masked_fill_((last & before).unsqueeze(1), -torch.inf)  # after a pair comes text
        log_probs[:, :eos].masked_fill_((last & ~before).unsqueeze(1), -torch.inf)  # after an end, a start or eos
        ids = torch.arange(first, log_probs.size(1), device=log_probs.device)
        times = torch.where(written >= first, written, 0).amax(1)  # (R,)
        least = torch.where(last & ~before, times, times + 1)  # a segment may start where the last one ended
        fallen = (ids < least.unsqueeze(1)) & (times > 0).unsqueeze(1)
        log_probs[:, first:].masked_fill_(fallen, -torch.inf)
        likely = log_probs[:, first:].logsumexp(1) > log_probs[:, :first].amax(1)  # (R,)
        log_probs[:, :first].masked_fill_(likely.unsqueeze(1), -torch.inf)
        return log_probs

    return apply
