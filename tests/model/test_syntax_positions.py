"""Positions in a dependency tree against walks over the tree in plain Python, and from CoNLL-U files to tokens."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.data.token_trees import TokenTrees, TreeBank
from heedful.errors import DataError
from heedful.formats.conllu import ROOT, DependencyTree, read_trees
from heedful.model.syntax_positions import structural_positions
from heedful.text.vocabulary import train_vocabulary

from .samples import fresh, sentences, shared, small

# the man who sleeps saw a dog: saw is the root; word 3 is two tokens
HEADS = [1, 4, 3, 1, ROOT, 6, 4]
TOKENS = [0, 1, 2, 3, 3, 4, 5, 6]  # the word of each token


def path_to_root(word):
    return [word, *path_to_root(HEADS[word])] if HEADS[word] != ROOT else [word]


def token_tree():
    first = [TOKENS.index(word) for word in range(len(HEADS))]
    pairs = [(first[w], first[w] if HEADS[w] == ROOT else first[HEADS[w]]) for w in TOKENS]
    return torch.tensor([pairs])


def test_positions_are_those_of_a_walk_over_the_tree():
    depth, relative = structural_positions(token_tree())
    depths = [len(path_to_root(word)) - 1 for word in TOKENS]
    assert depth[0].tolist() == depths
    for i, j in np.ndindex(8, 8):
        a, b = TOKENS[i], TOKENS[j]
        if a in path_to_root(b) or b in path_to_root(a):
            expected = depths[i] - depths[j]
        else:
            expected = (1 if i > j else -1) * (depths[i] + depths[j])
        assert relative[0, i, j] == expected


def test_a_tree_is_felt_as_the_paper_writes_it():
    """tanh(U p(t) + V p(depth)) on embeddings, and q · a(clipped relative position) / √d_k on the scores."""
    model = shared(small(positions="syntax", relative_window=2))
    source, tree = sentences([8]), token_tree()
    scheme = model.encoder.position
    bound, x = scheme.of_batch(tree), model.embedding(source)
    depth, relative = structural_positions(tree)
    for t in range(8):
        place = scheme.sequence.weight @ scheme.table[t] + scheme.structure.weight @ scheme.table[depth[0, t]]
        torch.testing.assert_close(bound.embed(x)[0, t], x[0, t] + place.tanh())
    query = torch.randn(1, 4, 8, 4, dtype=torch.float64)
    bias = bound.layer(1).bias(query, 8)
    for h, i, j in np.ndindex(4, 8, 8):
        vector = scheme.relative_1[int(relative[0, i, j].clamp(-2, 2)) + 2]
        assert float(bias[0, h, i, j]) == pytest.approx(float(query[0, h, i] @ vector) / math.sqrt(4))


def test_another_tree_is_another_memory_and_no_tree_is_the_sequence_alone():
    model = fresh(small(positions="syntax")).requires_grad_(False)
    source, target = sentences([8, 5]), sentences([4, 4], seed=1, start=2)
    plain = model(source, target)
    tree = torch.arange(8).view(1, 8, 1).expand(2, 8, 2).clone()
    tree[:1] = token_tree()
    model.trees = lambda ids: tree
    with_tree = model(source, target)
    assert (with_tree - plain).abs().amax((1, 2)).min() > 1e-6
    tree[1, 2, 1] = 0  # another head in the second sentence
    changed = (model(source, target) - with_tree).abs().amax((1, 2))
    assert changed[0] == 0 and changed[1] > 1e-6


CONLLU = """# text = She eats du pain.
1\tShe\t_\t_\t_\t_\t2\t_\t_\t_
2\teats\t_\t_\t_\t_\t0\t_\t_\t_
3-4\tdu\t_\t_\t_\t_\t_\t_\t_\t_
3\tde\t_\t_\t_\t_\t5\t_\t_\t_
4\tle\t_\t_\t_\t_\t5\t_\t_\t_
4.1\tghost\t_\t_\t_\t_\t_\t_\t_\t_
5\tpain\t_\t_\t_\t_\t2\t_\t_\t_
6\t.\t_\t_\t_\t_\t2\t_\t_\t_

1\tÜber\t_\t_\t_\t_\t0\t_\t_\t_
"""


def test_conllu_files_are_read_and_found_by_words(tmp_path: Path):
    path = tmp_path / "trees.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    she, above = read_trees(path)
    assert she == DependencyTree(("She", "eats", "du", "pain", "."), (1, ROOT, 3, 1, 1))
    assert above.heads == (ROOT,)
    tokenizer = train_vocabulary(["she eats bread"] * 5, 270)
    trees = TokenTrees(TreeBank([path], tokenizer), tokenizer)
    for text, tree in (("She eats du pain.", she), ("Über", above)):
        ids = [*tokenizer.encode(text), tokenizer.eos_id]
        (pairs,) = trees(torch.tensor([ids])).tolist()
        words = [place for place, (first, _) in enumerate(pairs[:-1]) if first == place]
        assert len(words) == len(tree.words)
        assert [words.index(pairs[place][1]) for place in words] == [
            place if head == ROOT else head for place, head in enumerate(tree.heads)
        ]
        assert pairs[-1] == [len(ids) - 1] * 2
        decoded = ["".join(tokenizer.decode(ids[a:b]).split()) for a, b in zip(words, [*words[1:], -1], strict=True)]
        assert decoded == list(tree.words)
    assert trees(torch.tensor([tokenizer.encode("nothing known")]))[0].tolist() == [
        [place, place] for place in range(len(tokenizer.encode("nothing known")))
    ]
    assert (trees.found, trees.missing) == (2, 1)


def sentence(heads: list[int], tokens: dict[int, str] = {}) -> str:  # noqa: B006
    """A sentence with these heads; `tokens` are lines before the word of a number."""
    lines = (f"{tokens.get(i, '')}{i}\tw{i}\t_\t_\t_\t_\t{head}\t_\t_\t_\n" for i, head in enumerate(heads, 1))
    return "".join(lines)


@pytest.mark.parametrize(("heads", "expected"), [([2, 4, 4, 0], [2, 2, ROOT]), ([3, 0, 2, 2], [ROOT, 0, 0])])
def test_a_token_of_several_words_has_the_head_of_the_word_nearest_to_the_root(tmp_path: Path, heads, expected):
    """In the first its first word hangs on its second; in the second, on a word that hangs on its second."""
    path = tmp_path / "trees.conllu"
    path.write_text(sentence(heads, {1: "1-2\tw\t_\t_\t_\t_\t_\t_\t_\t_\n"}), encoding="utf-8")
    (tree,) = read_trees(path)
    assert tree == DependencyTree(("w", "w3", "w4"), tuple(expected))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\ta\n", "has 2 columns"),
        (CONLLU.replace("\t5\t", "\t9\t"), "head"),
        (sentence([2, 1, 0]), "heads in a circle, before line 3"),
        (sentence([0, 3, 4, 2]), "heads in a circle"),
        (sentence([1]), "heads in a circle"),
        ("1-2" + CONLLU[CONLLU.index("\tShe") :].splitlines()[0] + "\n", "head"),
    ],
)
def test_a_damaged_file_is_explained(tmp_path: Path, text: str, message: str):
    path = tmp_path / "bad.conllu"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        list(read_trees(path))


def test_what_has_no_tree_is_refused():
    for changes in ({"family": "decoder"}, {"attention": "window"}, {"universal": True}):
        with pytest.raises(ValueError, match="syntax positions"):
            small(positions="syntax", **changes)
