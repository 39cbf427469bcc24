"""Where an encoder's weights start."""

from __future__ import annotations

import torch
from torch import nn

QUIET = 0.3
"""How much of the random weights is left where an encoder starts by looking its words up."""


@torch.no_grad()
def lookup(read: nn.LSTM, compose: nn.Linear, write: nn.LSTM) -> None:
    """Turn random weights into an encoder that starts by looking its words up in the memory.

    The read LSTM gives o_t as the word x_t, squashed by its gates, so the attention finds the slots that hold
    the word; compose hands everything on; the write LSTM gives h_t as what was found, squashed, on top of
    what it found before. So words, o, h and slots are vectors of one space from the first step, and
    attention, the encoder's own and another's that shares the memory, means something before anything is
    learned. From random weights, which slots a word reads says nothing about the word.
    """
    k, named = read.hidden_size, (*read.named_parameters(), *write.named_parameters())
    for weight in (compose.weight, *(weight for name, weight in named if name.startswith("weight"))):
        weight.mul_(QUIET)
    compose.weight.diagonal().add_(1.0)
    for lstm, found in ((read, 0), (write, k)):  # found: where, in the first layer's input, lies what to pass
        for layer in range(lstm.num_layers):
            into, bias = getattr(lstm, f"weight_ih_l{layer}"), getattr(lstm, f"bias_ih_l{layer}")
            start = found if layer == 0 else 0
            _, _, cell, _ = into.chunk(4)  # of the gates in, forget, cell and out
            cell[:, start : start + k].diagonal().add_(1.0)
            let_in, keep, _, let_out = bias.chunk(4)
            let_in.add_(1.0)
            let_out.add_(1.0)
            if lstm is read:
                keep.sub_(1.0)  # o is about this word, h about all so far
