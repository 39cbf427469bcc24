"""Sentence encoders: from words to a vector per word and, pooled, one per sentence."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nse.nn.encoder import NSE
from nse.ops.dispatch import choose
from nse.ops.types import LSTMLayer, Memory, real

Pool = Literal["last", "max", "mean-max"]


class Encoded(NamedTuple):
    """Sentences as an encoder leaves them."""

    outputs: Tensor  # [B, T, d], a vector per word, zero past a sentence's end
    lengths: Tensor  # [B], how many of the outputs are real
    last: Tensor  # [B, d], after the last word
    memories: tuple[Memory, ...] = ()  # what an NSE made of its memory, one per direction

    def pooled(self, pool: Pool) -> Tensor:
        """Give each sentence a vector [B, d], or [B, 2d] for mean and max together; of no words, zero."""
        if pool == "last":
            return self.last
        outside = ~real(self.lengths, self.outputs.shape[1])[..., None]
        highest: Tensor = self.outputs.masked_fill(outside, torch.finfo(self.outputs.dtype).min).amax(dim=1)
        highest = highest * (self.lengths > 0)[:, None]
        if pool == "max":
            return highest
        mean = self.outputs.sum(dim=1) / self.lengths.clamp(min=1)[:, None].to(self.outputs.dtype)
        return torch.cat([mean, highest], dim=-1)

    def beside(self, x: Tensor) -> Encoded:
        """Put the words' own vectors [B, T, k] beside the outputs."""
        words = x * real(self.lengths, x.shape[1])[..., None]
        return self._replace(outputs=torch.cat([words, self.outputs], dim=-1))


class NSESentence(nn.Module):
    """One NSE over the words, or two in opposite directions; `settings` are of each `NSE`."""

    def __init__(self, size: int, dropout: float, directions: int = 1, **settings: Any):
        super().__init__()
        made = [NSE(size, dropout=dropout, **settings) for _ in range(directions)]
        self.padding = made[0].padding
        self.nse = nn.ModuleList(made)

    def forward(self, x: Tensor, lengths: Tensor, shared: tuple[Memory, ...] = ()) -> Encoded:
        """Encode a batch [B, T, k]; `shared` are another encoder's memories, one for each direction."""
        others: list[tuple[Memory, ...]] = [(memory,) for memory in shared] or [()] * len(self.nse)
        forward = self.nse[0](x, lengths, shared=others[0])
        if self.padding == "paper":
            lengths = torch.full_like(lengths, x.shape[1])
        if len(self.nse) == 1:
            return Encoded(forward.outputs, lengths, forward.last, (forward.memory,))
        backward = self.nse[1](turned(x, lengths), lengths, shared=others[1])
        outputs = torch.cat([forward.outputs, turned(backward.outputs, lengths)], dim=-1)
        last = torch.cat([forward.last, backward.last], dim=-1)
        return Encoded(outputs, lengths, last, (forward.memory, backward.memory))


class LSTMSentence(nn.Module):
    """Baseline: an LSTM over the words, in one direction or in both, dropout on the words."""

    def __init__(self, size: int, dropout: float, directions: int = 1, layers: int = 1):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(size, size, layers, batch_first=True)
        self.back = nn.LSTM(size, size, layers, batch_first=True) if directions == 2 else None

    def forward(self, x: Tensor, lengths: Tensor) -> Encoded:
        """Encode a batch; an empty sentence is zero."""
        x = self.dropout(x)
        outputs = run(self.lstm, x, lengths)
        last = at_end(outputs, lengths)
        if self.back is not None:
            back = run(self.back, turned(x, lengths), lengths)
            outputs = torch.cat([outputs, turned(back, lengths)], dim=-1)
            last = torch.cat([last, at_end(back, lengths)], dim=-1)
        return Encoded(outputs * real(lengths, x.shape[1])[..., None], lengths, last)


class BagOfWords(nn.Module):
    """Baseline: the mean of the words, which does not know their order, dropout on the words."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Encoded:
        """Encode a batch; an empty sentence is zero."""
        words = self.dropout(x) * real(lengths, x.shape[1])[..., None]
        mean = words.sum(dim=1) / lengths.clamp(min=1)[:, None]
        return Encoded(words, lengths, mean)


def run(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> Tensor:
    """Compute the outputs of an LSTM at all words; past a sentence's end, any."""
    # Packing saves a CPU the padding, but reads the lengths there: a GPU would wait, and neither a CUDA graph
    # nor an exported one could hold it. What comes after the last word does not change the outputs before it.
    if x.is_cuda or torch.compiler.is_compiling():
        padded: Tensor = lstm(x)[0]
        return padded
    return run_to_end(lstm, x, lengths)[0]


def run_to_end(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute the outputs of an LSTM, zero past a sentence's end, and its lowest state at each end [B, k]."""
    if x.is_cuda and choose("auto", x.device) == "triton":
        from nse.ops.triton.recurrence import Batch, read_all  # only machines with a GPU have triton

        layer = LSTMLayer(*lstm.all_weights[0])
        with torch.autocast("cuda", enabled=False):
            outputs, (h, c) = read_all(Batch(x, lengths), x.float(), None, (layer,), layer.hh.dtype)
        return outputs, (h[0], c[0])
    some = lengths.clamp(min=1).cpu()  # packing refuses empty sequences
    packed, (h, c) = lstm(pack_padded_sequence(x, some, batch_first=True, enforce_sorted=False))
    return pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])[0], (h[0], c[0])


def at_end(outputs: Tensor, lengths: Tensor) -> Tensor:
    """Take of [B, T, d] the entry at each last word; zero for an empty sentence."""
    at = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, outputs.shape[-1])
    return outputs.gather(1, at).squeeze(1) * (lengths > 0)[:, None]


def turned(x: Tensor, lengths: Tensor) -> Tensor:
    """Turn every sentence of [B, T, d]: from its last word to its first; the padding stays behind it."""
    t = torch.arange(x.shape[1], device=x.device)
    source = torch.where(real(lengths, x.shape[1]), lengths[:, None] - 1 - t, t)
    return x.gather(1, source[..., None].expand_as(x))
