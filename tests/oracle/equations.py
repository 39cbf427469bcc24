"""The equations of the paper for ONE sequence, in NumPy float64: no batch, no padding, no torch.

Written from the paper's text, slot by slot, so that it shares neither code nor shape conventions with
the package: a sequence is a list of vectors and a memory is a list of slots.
"""

import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def lstm_layer(x, h, c, w_ih, w_hh, b_ih, b_hh):
    k = len(h)
    a = w_ih @ x + b_ih + w_hh @ h + b_hh
    c = sigmoid(a[k : 2 * k]) * c + sigmoid(a[:k]) * np.tanh(a[2 * k : 3 * k])
    return sigmoid(a[3 * k :]) * np.tanh(c), c


def lstm(x, state, layers):
    new = []
    for (h, c), weights in zip(state, layers, strict=True):
        h, c = lstm_layer(x, h, c, *weights)
        new.append((h, c))
        x = h
    return x, new


def encode(words, memories, read_state, write_state, read, compose, compose_bias, write, c_masks=None):
    """Run all steps; return every h, the final memories and states, and the keys z of each step."""
    memories = [[slot.copy() for slot in memory] for memory in memories]
    outputs, keys = [], []
    for t, word in enumerate(words):
        o, read_state = lstm(word, read_state, read)
        retrieved, z_of_step = [], []
        for memory in memories:
            scores = np.array([float(o @ slot) for slot in memory])
            z = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum() if memory else scores
            retrieved.append(sum((z_j * slot for z_j, slot in zip(z, memory, strict=True)), np.zeros(len(o))))
            z_of_step.append(z)
        c = compose @ np.concatenate([o, *retrieved]) + compose_bias
        if c_masks is not None:
            c = c * c_masks[t]
        h, write_state = lstm(c, write_state, write)
        for memory, z in zip(memories, z_of_step, strict=True):
            for j, z_j in enumerate(z):
                memory[j] = memory[j] * (1 - z_j) + h * z_j
        outputs.append(h)
        keys.append(z_of_step)
    return outputs, memories, read_state, write_state, keys
