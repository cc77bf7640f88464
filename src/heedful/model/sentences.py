"""Sentences as vectors: the sum of the word embeddings of a sentence, weighted by place (Sukhbaatar et al., 2015).

A memory network reads its memories so, and so does a Transformer with `sentence_input`: one position for each sentence.
"""

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig


def sentence_numbers(ids: Tensor, real: Tensor, config: ModelConfig) -> Tensor:
    """(B, S) twice -> (B, S): the number of the sentence that a token belongs to, from 1 on; 0 for what ends or pads.

    A sentence ends at its last mark, at a special token, and at the end of a text.
    """
    ends = torch.tensor([*config.sentence_ends, config.bos_id, config.eos_id], device=ids.device)
    word = real & ~torch.isin(ids, ends)
    before = nn.functional.pad(word[:, :-1], (1, 0))
    return (word & ~before).cumsum(1) * word


def word_places(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """(B, S) -> (B, S) twice: the place j of a word in its sentence, from 1 on, and J, the words of the sentence."""
    index = torch.arange(numbers.size(1), device=numbers.device).expand_as(numbers)
    first = nn.functional.pad(numbers[:, 1:] != numbers[:, :-1], (1, 0), value=True)
    start = torch.where(first, index, 0).cummax(1).values
    words = torch.zeros_like(numbers).scatter_add(1, numbers, torch.ones_like(numbers))
    return index - start + 1, words.gather(1, numbers)


def position_encoding(share: Tensor, width: int) -> Tensor:
    """(...) -> (..., D): (1 - j / J) - (k / d) (1 - 2 j / J), given the share j / J, for dimension k of d."""
    depth = torch.arange(1, width + 1, device=share.device, dtype=share.dtype) / width
    share = share.unsqueeze(-1)
    return (1 - share) - depth * (1 - 2 * share)


class SentenceSums:
    """Which words belong to which of the latest sentences; the vector of a sentence is the sum of its words."""

    def __init__(self, age: Tensor, counts: Tensor) -> None:
        """(B, S): the sentence of each word, 0 the latest, negative outside; (B, 1): the sentences of each text."""
        self.member, self.counts = (age >= 0) & (age < counts), counts.squeeze(1)  # (B, S), (B,)
        self.size = int(counts.max())  # M
        self.exist = torch.arange(self.size, device=age.device) < counts  # (B, M)
        self.slot = (age + self.size * torch.arange(len(age), device=age.device).unsqueeze(1))[self.member]  # (N,)

    def sums(self, vectors: Tensor) -> Tensor:
        """(N, D), of the words of all sentences -> (B, M, D)."""
        total = vectors.new_zeros(self.exist.numel(), vectors.size(1)).index_add(0, self.slot, vectors)
        return total.view(*self.exist.shape, vectors.size(1))

    def share(self, weights: Tensor) -> Tensor:
        """(B, M) -> (B, S): the weight of each sentence, divided among its words."""
        words = torch.bincount(self.slot, minlength=self.exist.numel())
        spread = weights.new_zeros(self.member.shape)
        spread[self.member] = weights.flatten()[self.slot] / words[self.slot]
        return spread


def embed_sentences(x: Tensor, ids: Tensor, real: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """(B, S, D), (B, S) twice -> (B, M, D), (B, M): the vectors of all sentences, the last first; which are real.

    The last sentence, the question about a text, is always position 0.
    """
    numbers = sentence_numbers(ids, real, config)
    place, words = word_places(numbers)
    last = numbers.amax(1, keepdim=True)
    sentences = SentenceSums((last - numbers).masked_fill(numbers == 0, -1), last.clamp(min=1))
    encoding = position_encoding(place.to(x.dtype) / words, x.size(2))
    return sentences.sums((x * encoding)[sentences.member]), sentences.exist
