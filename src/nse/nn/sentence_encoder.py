"""Sentence encoders: from word vectors to an output per word and, pooled, one vector per sentence."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nse.nn.encoder import NSE
from nse.ops.dispatch import choose_backend
from nse.ops.types import LSTMLayer, Memory, make_mask

Pool = Literal["last", "max", "mean-max"]


class Encoded(NamedTuple):
    """Outputs of a sentence encoder."""

    outputs: Tensor  # [B, T, d], one per word, zero in the padding
    lengths: Tensor  # [B], number of outputs that are not padding
    last: Tensor  # [B, d], output after the last word
    memories: tuple[Memory, ...] = ()  # final memories of an NSE, one per direction

    def pool(self, pool: Pool) -> Tensor:
        """Pool to one vector per sentence: [B, d], or [B, 2d] for "mean-max"; zero without words."""
        if pool == "last":
            return self.last
        padding = ~make_mask(self.lengths, self.outputs.shape[1])[..., None]
        highest: Tensor = self.outputs.masked_fill(padding, torch.finfo(self.outputs.dtype).min).amax(dim=1)
        highest = highest * (self.lengths > 0)[:, None]
        if pool == "max":
            return highest
        mean = self.outputs.sum(dim=1) / self.lengths.clamp(min=1)[:, None].to(self.outputs.dtype)
        return torch.cat([mean, highest], dim=-1)

    def select(self, index: Tensor, size: int | None = None) -> Encoded:
        """Return the sentences of this index [N], truncated to `size` words, without memories."""
        return Encoded(self.outputs[:, :size][index], self.lengths[index], self.last[index])

    def concat_embeddings(self, x: Tensor) -> Encoded:
        """Put the word vectors [B, T, k] in front of the outputs: [B, T, k + d]."""
        words = x * make_mask(self.lengths, x.shape[1])[..., None]
        return self._replace(outputs=torch.cat([words, self.outputs], dim=-1))


class NSESentence(nn.Module):
    """One NSE over the words, or two in opposite directions; `settings` are passed to each `NSE`."""

    def __init__(self, size: int, dropout: float, directions: int = 1, **settings: Any):
        super().__init__()
        encoders = [NSE(size, dropout=dropout, **settings) for _ in range(directions)]
        self.padding = encoders[0].padding
        self.nse = nn.ModuleList(encoders)

    def forward(self, x: Tensor, lengths: Tensor, shared: tuple[Memory, ...] = ()) -> Encoded:
        """Encode a batch [B, T, k]; `shared` are memories of another encoder, one per direction."""
        forward = self.nse[0](x, lengths, shared=shared[:1])
        if self.padding == "paper":
            lengths = torch.full_like(lengths, x.shape[1])
        if len(self.nse) == 1:
            return Encoded(forward.outputs, lengths, forward.last, (forward.memory,))
        backward = self.nse[1](reverse_sequences(x, lengths), lengths, shared=shared[1:])
        outputs = torch.cat([forward.outputs, reverse_sequences(backward.outputs, lengths)], dim=-1)
        last = torch.cat([forward.last, backward.last], dim=-1)
        return Encoded(outputs, lengths, last, (forward.memory, backward.memory))


class LSTMSentence(nn.Module):
    """Baseline: an LSTM over the words, in one or both directions, with dropout on the words."""

    def __init__(self, size: int, dropout: float, directions: int = 1, layers: int = 1):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(size, size, layers, batch_first=True)
        self.back = nn.LSTM(size, size, layers, batch_first=True) if directions == 2 else None

    def forward(self, x: Tensor, lengths: Tensor) -> Encoded:
        """Encode a batch; an empty sentence gives zeros."""
        x = self.dropout(x)
        outputs = run_lstm(self.lstm, x, lengths)
        last = take_last(outputs, lengths)
        if self.back is not None:
            back = run_lstm(self.back, reverse_sequences(x, lengths), lengths)
            outputs = torch.cat([outputs, reverse_sequences(back, lengths)], dim=-1)
            last = torch.cat([last, take_last(back, lengths)], dim=-1)
        return Encoded(outputs * make_mask(lengths, x.shape[1])[..., None], lengths, last)


class BagOfWords(nn.Module):
    """Baseline: the mean of the word vectors, with dropout on them."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Encoded:
        """Encode a batch; an empty sentence gives zeros."""
        words = self.dropout(x) * make_mask(lengths, x.shape[1])[..., None]
        mean = words.sum(dim=1) / lengths.clamp(min=1)[:, None]
        return Encoded(words, lengths, mean)


def can_share_sentences(ids: Tensor) -> bool:
    """Return whether to encode equal sentences once: for answers, and where finding them waits for no GPU."""
    is_answer = torch.is_inference_mode_enabled() and not torch.compiler.is_compiling()
    return is_answer and ids.device.type == "cpu"


def find_distinct(ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the distinct sentences of a batch [B, T]: their ids and lengths, and the index [B] of each row."""
    ids = ids * make_mask(lengths, ids.shape[1])  # equal whatever their padding holds
    rows, index = torch.unique(torch.cat([lengths[:, None], ids], dim=1), dim=0, return_inverse=True)
    return rows[:, 1:], rows[:, 0], index


def run_lstm(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> Tensor:
    """Compute the outputs of an LSTM; those in the padding are undefined."""
    # Packing saves a CPU the padding but reads the lengths on the host: a GPU would wait, and neither a CUDA
    # graph nor an exported one could hold it. Words after the end do not change the outputs before it.
    if x.is_cuda or torch.compiler.is_compiling():
        outputs: Tensor = lstm(x)[0]
        return outputs
    return run_lstm_to_end(lstm, x, lengths)[0]


def run_lstm_to_end(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute the outputs of an LSTM, zero in the padding, and its first layer's state at each end [B, k]."""
    if x.is_cuda and choose_backend("auto", x.device) == "triton":
        from nse.ops.triton.recurrence import Batch, run_read_lstm  # only machines with a GPU have triton

        layer = LSTMLayer(*lstm.all_weights[0])
        with torch.autocast("cuda", enabled=False):
            outputs, (h, c) = run_read_lstm(Batch(x, lengths), x.float(), None, (layer,), layer.hh.dtype)
        return outputs, (h[0], c[0])
    at_least_one = lengths.clamp(min=1).cpu()  # packing refuses empty sequences
    packed, (h, c) = lstm(pack_padded_sequence(x, at_least_one, batch_first=True, enforce_sorted=False))
    return pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])[0], (h[0], c[0])


def take_last(outputs: Tensor, lengths: Tensor) -> Tensor:
    """Take the output at each last word [B, d] from [B, T, d]; zero for an empty sentence."""
    index = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, outputs.shape[-1])
    return outputs.gather(1, index).squeeze(1) * (lengths > 0)[:, None]


def reverse_sequences(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the words of each sentence of [B, T, d]; the padding stays at the end."""
    t = torch.arange(x.shape[1], device=x.device)
    source = torch.where(make_mask(lengths, x.shape[1]), lengths[:, None] - 1 - t, t)
    return x.gather(1, source[..., None].expand_as(x))
