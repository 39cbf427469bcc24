"""Initial weights of an encoder."""

from __future__ import annotations

import torch
from torch import nn

SCALE = 0.3
"""Factor of the random weights that the lookup is added to."""


@torch.no_grad()
def init_lookup(read: nn.LSTM, compose: nn.Linear, write: nn.LSTM) -> None:
    """Change random weights so that the encoder starts by looking up each word in the memory.

    The read LSTM passes x_t on as o_t (squashed by its gates), so attention finds the slots that hold the
    word; compose is the identity; the write LSTM adds m_t (squashed) to what it read before. So words, o, h
    and slots are vectors of one space from the first step, and attention is meaningful before training, also
    to a memory that another encoder shares. With random weights it is unrelated to the words.
    """
    k, parameters = read.hidden_size, [*read.named_parameters(), *write.named_parameters()]
    for weight in (compose.weight, *(weight for name, weight in parameters if name.startswith("weight"))):
        weight.mul_(SCALE)
    compose.weight.diagonal().add_(1.0)
    for lstm, first_column in ((read, 0), (write, k)):  # where the first layer's input holds x_t or m_t
        for layer in range(lstm.num_layers):
            weight, bias = getattr(lstm, f"weight_ih_l{layer}"), getattr(lstm, f"bias_ih_l{layer}")
            column = first_column if layer == 0 else 0
            _, _, cell, _ = weight.chunk(4)
            cell[:, column : column + k].diagonal().add_(1.0)
            input_gate, forget_gate, _, output_gate = bias.chunk(4)
            input_gate.add_(1.0)
            output_gate.add_(1.0)
            if lstm is read:
                forget_gate.sub_(1.0)  # o is about this word, h about all words so far
