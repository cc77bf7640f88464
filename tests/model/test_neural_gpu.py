"""The Neural GPU against loops in NumPy over every cell of its memory."""

import math

import numpy as np
import pytest

from .samples import sentences, shared, small

SOURCE_LENGTHS, TARGET_LENGTHS = [7, 3, 5], [4, 8, 2]


def neural_gpu(**changes):
    sizes = {"architecture": "neural-gpu", "d_model": 6, "memory_width": 3, "unfold_extra": 1}
    return small(**sizes | {"n_heads": 1} | changes)


def convolved(x, module):
    """(n, w, D) -> (n, w, out): every sum of the 2-D convolution written out; zeros beyond the edges."""
    weight = module.weight.detach().numpy()
    out = np.zeros((*x.shape[:2], len(weight)))
    if module.bias is not None:
        out += module.bias.detach().numpy()
    reach = weight.shape[2] // 2
    for i, j in np.ndindex(x.shape[:2]):
        for a, b in np.ndindex(weight.shape[2:]):
            row, column = i + a - reach, j + b - reach
            if 0 <= row < x.shape[0] and 0 <= column < x.shape[1]:
                out[i, j] += weight[:, :, a, b] @ x[row, column]
    return out


def cutoff(x):
    return np.clip(1.2 / (1 + np.exp(-x)) - 0.1, 0, 1)


def cgru(s, cell, p=None):
    """CGRU(s) = u s + (1 - u) tanh(U * (r s) + W * p + B)."""
    maps = s.shape[2]
    written = np.zeros((*s.shape[:2], 3 * maps)) if p is None else convolved(p, cell.tape)
    gates = convolved(s, cell.gates) + written[:, :, : 2 * maps]
    u, r = cutoff(gates[:, :, :maps]), cutoff(gates[:, :, maps:])
    return u * s + (1 - u) * np.tanh(convolved(r * s, cell.candidate) + written[:, :, 2 * maps :])


def encode_by_hand(model, ids):
    memory = np.zeros((math.ceil(1.2 * len(ids)) + 1, 3, 6))  # n = a |s| + b columns
    memory[: len(ids), 0] = model.embedding(ids).detach().numpy()
    for _ in range(len(memory)):
        for cell in model.encoder.cells:
            memory = cgru(memory, cell)
    return memory


def test_the_extended_neural_gpu_is_what_the_paper_writes():
    """The tape holds the decoder's inputs so far; the memory changes once a step; targets may outgrow the memory."""
    model = shared(neural_gpu())
    source, target = sentences(SOURCE_LENGTHS), sentences(TARGET_LENGTHS, seed=1, start=2)
    out = model(source, target)
    for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        memory = encode_by_hand(model, source[row, :s])
        tape = np.zeros_like(memory)
        for step in range(t):
            column = min(step, len(memory) - 1)
            tape[column, 0] = model.embedding(target[row, step]).numpy()
            for cell in model.decoder.cells:
                memory = cgru(memory, cell, tape)
            np.testing.assert_allclose(out[row, step].numpy(), memory[column, 0], atol=1e-12)


def test_the_neural_gpu_reads_all_outputs_off_the_memory_at_once():
    model = shared(neural_gpu(autoregressive=False))
    source, target = sentences(SOURCE_LENGTHS), sentences([4, 5, 2], seed=1, start=2)
    cache = model.start(source)
    out = model(source, target)
    np.testing.assert_allclose(model.step(target[:, :2], cache).numpy(), out[:, :2].numpy())
    np.testing.assert_allclose(model.step(target[:, 2:], cache).numpy(), out[:, 2:].numpy())
    for row, s in enumerate(SOURCE_LENGTHS):
        memory = encode_by_hand(model, source[row, :s])
        for step in range(5):
            expected = memory[min(step, len(memory) - 1), 0]
            np.testing.assert_allclose(out[row, step].numpy(), expected, atol=1e-12)


def test_a_language_model_has_no_source():
    with pytest.raises(ValueError, match="a language model has none"):
        neural_gpu(family="decoder")
