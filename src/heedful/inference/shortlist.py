"""Lexical shortlists: the target tokens that a source allows, so that the output layer computes only these.

Built from sentence pairs by the translation probabilities of IBM model 1 (Brown et al., 1993) and stored in a model
folder beside the weights. Works on token ids; models and search are unknown here.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from heedful.errors import DataError, FolderError, SettingError
from heedful.files import find
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer
from heedful.text.vocabulary import BYTES

SHORTLIST_FILE = "shortlist.safetensors"
FORMAT = "1"
TENSORS = ("always", "first", "likely")
LIKELY, FREQUENT = 100, 100  # target tokens per source token, and most frequent ones for every sentence
ROUNDS = 5  # of expectation-maximization; more hardly change the most likely tokens
MOST_LINKS = 16_000_000  # (source token, target token) pairs in memory
ENCODE_BATCH = 10_000  # pairs that are tokenized at once
SIZE_SAMPLE = 1000  # pairs over which the mean size is computed
MOST_BYTES = 256 << 20  # largest file that is read

Ids = npt.NDArray[np.int32]
Pair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class Shortlist:
    """The likely target tokens of every source token, and the tokens allowed in every sentence.

    Source token s has likely[first[s] : first[s + 1]]; a token without any did not occur in the training pairs.
    """

    vocab_size: int  # of the target
    always: Ids
    first: Ids
    likely: Ids

    def size(self, pairs: Sequence[Pair]) -> float:
        """Mean number of tokens allowed for a sentence, over a sample of these pairs."""
        lists = [
            ids for source, _ in pairs[:: -(-len(pairs) // SIZE_SAMPLE)] if (ids := self.tokens(source)) is not None
        ]
        return sum(map(len, lists)) / len(lists)

    def tokens(self, source: Sequence[int], prefix: Sequence[int] = ()) -> Ids | None:
        """The allowed target ids in ascending order; None, which allows all, if a source token is unknown."""
        lists = [self.likely[self.first[token] : self.first[token + 1]] for token in set(source)]
        if not all(map(len, lists)):
            return None
        chosen = np.zeros(self.vocab_size, dtype=bool)
        chosen[np.concatenate([self.always, *lists, np.array(prefix, dtype=np.int32)])] = True
        return np.flatnonzero(chosen).astype(np.int32)


def build_shortlist(pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> Shortlist:
    """Build a shortlist from pairs of ids without special tokens; too many pairs are subsampled evenly."""
    pairs = [pair for pair in pairs if pair[0] and pair[1]]
    if not pairs:
        raise DataError("a shortlist cannot be built: no pair has text on both sides.")
    links = sum(len(a) * len(b) for a, b in pairs)
    probability, source_ids, target_ids = estimate_ibm1(pairs[:: -(-links // MOST_LINKS)], target.vocab_size)
    order = np.lexsort((target_ids, -probability, source_ids))  # by source token, most likely first
    source_ids, target_ids = source_ids[order], target_ids[order]
    place = np.arange(len(source_ids)) - np.searchsorted(source_ids, source_ids)  # rank within its source token
    source_ids, target_ids = source_ids[place < LIKELY], target_ids[place < LIKELY]
    twins = equal_pieces(source, target)
    twins = twins[np.isin(twins[:, 0], source_ids)]  # names and numbers are copied; unknown source tokens stay empty
    both = np.unique(np.concatenate([np.stack([source_ids, target_ids], 1), twins]), axis=0)
    first = np.searchsorted(both[:, 0], np.arange(source.vocab_size + 1))
    counts = np.bincount(np.concatenate([ids for _, ids in pairs]), minlength=target.vocab_size)
    frequent = np.argsort(-counts, kind="stable")[:FREQUENT]
    always = np.unique(np.concatenate([frequent[counts[frequent] > 0], required_tokens(target)]))
    return Shortlist(target.vocab_size, *(ids.astype(np.int32) for ids in (always, first, both[:, 1])))


def estimate_ibm1(pairs: Sequence[Pair], vocab_size: int) -> tuple[npt.NDArray[np.float64], Ids, Ids]:
    """IBM model 1: the translation probability of every source and target token that occur in one pair.

    -> (K,) probabilities, (K,) source ids, (K,) target ids. Target tokens may also align to NULL, so that frequent ones
    do not fill the lists.
    """
    # every target token (N of them) is linked to every token of its source: L links, K distinct ones
    lengths = np.array([(len(a), len(b)) for a, b in pairs])
    counts = np.repeat(lengths[:, 0], lengths[:, 1])  # (N,) links of each target token
    target = np.concatenate([ids for _, ids in pairs])  # (N,)
    source = np.concatenate([np.tile(a, len(b)) for a, b in pairs])  # (L,)
    keys, kind = np.unique(source.astype(np.int64) * vocab_size + np.repeat(target, counts), return_inverse=True)
    kind = kind.astype(np.int32)
    source_of, target_of = keys // vocab_size, keys % vocab_size
    begin = np.cumsum(counts) - counts  # (N,) offset of its first link
    probability = np.ones(len(keys))
    null = np.bincount(target, minlength=vocab_size) / len(target)
    for _ in range(ROUNDS):
        share = probability[kind]
        share /= np.repeat(np.add.reduceat(share, begin) + null[target], counts)
        count = np.bincount(kind, share, len(keys))
        probability = count / np.bincount(source_of, count)[source_of]
    return probability, source_of.astype(np.int32), target_of.astype(np.int32)


def equal_pieces(source: Tokenizer, target: Tokenizer) -> Ids:
    """(K, 2): source and target ids of tokens with equal text."""
    ids = {piece: number for number, piece in enumerate(target.pieces(range(target.vocab_size)))}
    pieces = enumerate(source.pieces(range(source.vocab_size)))
    return np.array([(number, ids[piece]) for number, piece in pieces if piece in ids], dtype=np.int32).reshape(-1, 2)


def required_tokens(target: Tokenizer) -> list[int]:
    """Tokens that every sentence is allowed: special tokens, and bytes for characters outside the vocabulary."""
    specials = target.specials
    known = set(BYTES)
    spelling = [number for number, piece in enumerate(target.pieces(range(target.vocab_size))) if piece in known]
    return [specials.pad, specials.bos, specials.eos, *target.extras.values(), *spelling]


def save_shortlist(shortlist: Shortlist, folder: ModelFolder) -> Path:
    """Save it beside the weights, with the digest of the vocabularies."""
    import torch

    from heedful.storage.module_weights import save_weights

    check_no_pointer(folder)
    path = folder.path / SHORTLIST_FILE
    tensors = {name: torch.from_numpy(getattr(shortlist, name)) for name in TENSORS}
    save_weights(tensors, path, {"format": FORMAT, "vocabulary": vocabulary_hash(folder)})
    return path


def check_no_pointer(folder: ModelFolder) -> None:
    """Refuse a shortlist for a pointer-generator."""
    if folder.config.pointer:
        raise SettingError(
            f"{folder.path} copies tokens from its source (model.pointer), which a shortlist may lack; leave the"
            " shortlist out."
        )


def load_shortlist(folder: ModelFolder) -> Shortlist:
    """Open the shortlist of a model folder, or raise a FolderError."""
    check_no_pointer(folder)
    path = folder.path / SHORTLIST_FILE
    command = f"`heedful shortlist {folder.path} --source FILE --target FILE`"
    if find(folder.path, SHORTLIST_FILE, MOST_BYTES) is None:
        raise FolderError(f"{folder.path} has no shortlist; build one with {command}.")
    again = f"build it again with {command}"
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            types = {name: file.get_slice(name).get_dtype() for name in TENSORS}
            tensors = {name: file.get_tensor(name) for name in TENSORS if types[name] == "I32"}
    except (SafetensorError, OSError) as error:
        raise FolderError(f"{path} is damaged ({error}); {again}.") from None
    if metadata.get("format") != FORMAT:
        written = str(metadata.get("format"))[:50]
        raise FolderError(f"{path} was written in format {written} and this version reads {FORMAT}; update heedful.")
    if metadata.get("vocabulary") != vocabulary_hash(folder):
        raise FolderError(f"{path} was built for another vocabulary; {again}.")
    if len(tensors) < len(TENSORS) or not valid_shortlist(**tensors, folder=folder):
        raise FolderError(f"{path} is damaged (its numbers do not fit together); {again}.")
    return Shortlist(folder.tokenizer.vocab_size, **tensors)


def valid_shortlist(always: Ids, first: Ids, likely: Ids, folder: ModelFolder) -> bool:
    """Whether shapes and ids are consistent with the vocabularies."""
    if any(ids.ndim != 1 for ids in (always, first, likely)):
        return False
    if len(first) != folder.source_tokenizer.vocab_size + 1 or first[0] != 0 or first[-1] != len(likely):
        return False
    tokens = np.concatenate([always, likely])
    inside = bool((tokens >= 0).all() and (tokens < folder.tokenizer.vocab_size).all())
    return (
        inside and bool((np.diff(first) >= 0).all()) and set(required_tokens(folder.tokenizer)) <= set(always.tolist())
    )


def vocabulary_hash(folder: ModelFolder) -> str:
    """The digest of both vocabularies."""
    both = folder.source_tokenizer.to_json(), folder.tokenizer.to_json()
    return hashlib.sha256("\n".join(both).encode()).hexdigest()


def vocabulary_map(shortlist: Shortlist, folder: ModelFolder) -> str:
    """The shortlist as CTranslate2's vmap.txt; its first line applies to every sentence."""
    source, target = (
        tokenizer.pieces(range(tokenizer.vocab_size)) for tokenizer in (folder.source_tokenizer, folder.tokenizer)
    )
    lists = np.split(shortlist.likely, shortlist.first[1:-1])
    every = [("", shortlist.always), *((piece, ids) for piece, ids in zip(source, lists, strict=True) if len(ids))]
    return "".join(f"{piece}\t{' '.join(target[number] for number in ids)}\n" for piece, ids in every)


def encode_pairs(pairs: Iterable[tuple[str, str]], folder: ModelFolder) -> list[Pair]:
    """Pairs of text as pairs of ids."""
    ids: list[Pair] = []
    unread = iter(pairs)
    while some := list(itertools.islice(unread, ENCODE_BATCH)):
        sources = folder.source_tokenizer.encode_batch([source for source, _ in some])
        ids += zip(sources, folder.tokenizer.encode_batch([target for _, target in some]), strict=True)
    return ids
