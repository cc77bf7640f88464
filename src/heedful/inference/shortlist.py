"""Which target tokens a source makes likely, so that a translator need not weigh up its whole vocabulary at every step.

Learned from pairs of sentences by word translation probabilities (IBM model 1; Brown et al., 1993), kept in a model
folder beside the weights. It counts in token ids, and knows neither model nor search.
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

from heedful.errors import DataError, FolderError
from heedful.files import find
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer
from heedful.text.vocabulary import BYTES

SHORTLIST_FILE = "shortlist.safetensors"
FORMAT = "1"
TENSORS = ("always", "first", "likely")
LIKELY, FREQUENT = 100, 100  # target tokens of each source token, and of every sentence
ROUNDS = 5  # of expectation and maximisation: more change hardly which tokens are the likely ones
MOST_LINKS = 16_000_000  # of a source token with a target token of its pair: they are held in memory
ENCODE_BATCH = 10_000  # pairs that are encoded at once
SIZE_SAMPLE = 1000  # pairs that a new shortlist is tried on
MOST_BYTES = 256 << 20  # of a file that we are willing to read

Ids = npt.NDArray[np.int32]
Pair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class Shortlist:
    """For every source token its likely target tokens, and the tokens that every sentence may have.

    Those of source token s are likely[first[s] : first[s + 1]]; a token that has none was never seen.
    """

    vocab_size: int  # of the target
    always: Ids
    first: Ids
    likely: Ids

    def size(self, pairs: Sequence[Pair]) -> float:
        """How many tokens the translation of a sentence may have, in the mean of some of these."""
        each = [
            ids for source, _ in pairs[:: -(-len(pairs) // SIZE_SAMPLE)] if (ids := self.tokens(source)) is not None
        ]
        return sum(map(len, each)) / len(each)

    def tokens(self, source: Sequence[int], prefix: Sequence[int] = ()) -> Ids | None:
        """The ids that a translation may have, in ascending order; None, that is all, if a source token is unknown."""
        each = [self.likely[self.first[token] : self.first[token + 1]] for token in set(source)]
        if not all(map(len, each)):
            return None
        chosen = np.zeros(self.vocab_size, dtype=bool)
        chosen[np.concatenate([self.always, *each, np.array(prefix, dtype=np.int32)])] = True
        return np.flatnonzero(chosen).astype(np.int32)


def build_shortlist(pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> Shortlist:
    """A shortlist from pairs of ids without special tokens. Of too many pairs it reads some, evenly spaced."""
    pairs = [pair for pair in pairs if pair[0] and pair[1]]
    if not pairs:
        raise DataError("there is nothing to learn a shortlist from: no pair has text on both sides.")
    links = sum(len(a) * len(b) for a, b in pairs)
    probability, source_ids, target_ids = estimate_ibm1(pairs[:: -(-links // MOST_LINKS)], target.vocab_size)
    order = np.lexsort((target_ids, -probability, source_ids))  # by source, the likely ones first
    source_ids, target_ids = source_ids[order], target_ids[order]
    place = np.arange(len(source_ids)) - np.searchsorted(source_ids, source_ids)  # among those of its source token
    source_ids, target_ids = source_ids[place < LIKELY], target_ids[place < LIKELY]
    twins = equal_pieces(source, target)
    twins = twins[np.isin(twins[:, 0], source_ids)]  # names and numbers are copied; what was never seen has nothing
    both = np.unique(np.concatenate([np.stack([source_ids, target_ids], 1), twins]), axis=0)
    first = np.searchsorted(both[:, 0], np.arange(source.vocab_size + 1))
    counts = np.bincount(np.concatenate([ids for _, ids in pairs]), minlength=target.vocab_size)
    frequent = np.argsort(-counts, kind="stable")[:FREQUENT]
    always = np.unique(np.concatenate([frequent[counts[frequent] > 0], required_tokens(target)]))
    return Shortlist(target.vocab_size, *(each.astype(np.int32) for each in (always, first, both[:, 1])))


def estimate_ibm1(pairs: Sequence[Pair], vocab_size: int) -> tuple[npt.NDArray[np.float64], Ids, Ids]:
    """The probability that a source token becomes a target token, for all that meet in a pair: IBM model 1.

    -> (K,) probabilities, (K,) source ids, (K,) target ids. Any target token may also come of nothing, so that frequent
    ones do not crowd the lists.
    """
    # every target token (N of them) is linked to every token of its source: L links, K kinds of them
    lengths = np.array([(len(a), len(b)) for a, b in pairs])
    many = np.repeat(lengths[:, 0], lengths[:, 1])  # (N,) links of each target token
    target = np.concatenate([ids for _, ids in pairs])  # (N,)
    source = np.concatenate([np.tile(a, len(b)) for a, b in pairs])  # (L,)
    keys, kind = np.unique(source.astype(np.int64) * vocab_size + np.repeat(target, many), return_inverse=True)
    kind = kind.astype(np.int32)
    source_of, target_of = keys // vocab_size, keys % vocab_size
    begin = np.cumsum(many) - many  # (N,) where its links begin
    probability = np.ones(len(keys))
    by_nothing = np.bincount(target, minlength=vocab_size) / len(target)
    for _ in range(ROUNDS):
        share = probability[kind]
        share /= np.repeat(np.add.reduceat(share, begin) + by_nothing[target], many)
        count = np.bincount(kind, share, len(keys))
        probability = count / np.bincount(source_of, count)[source_of]
    return probability, source_of.astype(np.int32), target_of.astype(np.int32)


def equal_pieces(source: Tokenizer, target: Tokenizer) -> Ids:
    """(K, 2): source and target ids of equal pieces."""
    ids = {piece: number for number, piece in enumerate(target.pieces(range(target.vocab_size)))}
    pieces = enumerate(source.pieces(range(source.vocab_size)))
    return np.array([(number, ids[piece]) for number, piece in pieces if piece in ids], dtype=np.int32).reshape(-1, 2)


def required_tokens(target: Tokenizer) -> list[int]:
    """What no output can do without: the special tokens, and the bytes that spell what the vocabulary lacks."""
    specials = target.specials
    known = set(BYTES)
    spelling = [number for number, piece in enumerate(target.pieces(range(target.vocab_size))) if piece in known]
    return [specials.pad, specials.bos, specials.eos, *target.extras.values(), *spelling]


def save_shortlist(shortlist: Shortlist, folder: ModelFolder) -> Path:
    """Put it beside the weights, with the digest of the vocabularies that it counts in."""
    import torch

    from heedful.storage.module_weights import save_weights

    path = folder.path / SHORTLIST_FILE
    tensors = {name: torch.from_numpy(getattr(shortlist, name)) for name in TENSORS}
    save_weights(tensors, path, {"format": FORMAT, "vocabulary": vocabulary_hash(folder)})
    return path


def load_shortlist(folder: ModelFolder) -> Shortlist:
    """Open the shortlist of a model folder, or say in one sentence why there is none."""
    path = folder.path / SHORTLIST_FILE
    command = f"heedful shortlist {folder.path} --source FILE --target FILE"
    if find(folder.path, SHORTLIST_FILE, MOST_BYTES) is None:
        raise FolderError(f"{folder.path} has no shortlist; make one with {command}.")
    again = f"make it again with {command}"
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            types = {name: file.get_slice(name).get_dtype() for name in TENSORS}
            found = {name: file.get_tensor(name) for name in TENSORS if types[name] == "I32"}
    except (SafetensorError, OSError) as error:
        raise FolderError(f"{path} is damaged ({error}); {again}.") from None
    if metadata.get("format") != FORMAT:
        written = str(metadata.get("format"))[:50]
        raise FolderError(f"{path} was written in format {written} and this version reads {FORMAT}; update heedful.")
    if metadata.get("vocabulary") != vocabulary_hash(folder):
        raise FolderError(f"{path} was learned with another vocabulary; {again}.")
    if len(found) < len(TENSORS) or not valid_shortlist(**found, folder=folder):
        raise FolderError(f"{path} is damaged (its numbers do not fit together); {again}.")
    return Shortlist(folder.tokenizer.vocab_size, **found)


def valid_shortlist(always: Ids, first: Ids, likely: Ids, folder: ModelFolder) -> bool:
    """Whether all numbers are such that they can be used."""
    if any(each.ndim != 1 for each in (always, first, likely)):
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
    """The same as CTranslate2 reads it, in vmap.txt beside its model; the first line is for every sentence."""
    source, target = (each.pieces(range(each.vocab_size)) for each in (folder.source_tokenizer, folder.tokenizer))
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
