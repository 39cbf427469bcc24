"""Models built on sentence encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from nse.nn.encoder import NSE


class SentenceEncoder(Protocol):
    """From words x [B, T, k] and their lengths to one vector a sentence [B, k]."""

    def __call__(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Encode a batch."""
        ...


class NSESentence(nn.Module):
    """The sentence vector of the paper: an NSE's h at the last word."""

    def __init__(self, size: int, dropout: float):
        super().__init__()
        self.nse = NSE(size, dropout=dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Encode a batch."""
        encoding = self.nse(x, lengths)
        last: Tensor = encoding.last
        return last


class LSTMSentence(nn.Module):
    """Baseline: an LSTM's h at the last word."""

    def __init__(self, size: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(size, size, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Encode a batch; an empty sentence is zero."""
        # Packing saves a CPU the padding, but reads the lengths there: a GPU would wait, and a CUDA graph
        # could not hold it.
        last = self.padded if x.is_cuda else self.packed
        return last(self.dropout(x), lengths) * (lengths > 0)[:, None]

    def packed(self, x: Tensor, lengths: Tensor) -> Tensor:
        """The h at each last word, from the words alone; of an empty sentence, any."""
        some = lengths.clamp(min=1).cpu()  # packing refuses empty sequences
        words = pack_padded_sequence(x, some, batch_first=True, enforce_sorted=False)
        h: Tensor = self.lstm(words)[1][0]
        return h[-1]

    def padded(self, x: Tensor, lengths: Tensor) -> Tensor:
        """The same from words and padding: what comes after the last word does not change its h."""
        outputs: Tensor = self.lstm(x)[0]
        at = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, outputs.shape[-1])
        return outputs.gather(1, at).squeeze(1)


class BagOfWords(nn.Module):
    """Baseline: the mean of the words, which does not know their order."""

    def __init__(self, size: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Encode a batch; an empty sentence is zero."""
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        total: Tensor = (self.dropout(x) * real[..., None]).sum(dim=1)
        return total / lengths.clamp(min=1)[:, None]


ENCODERS: dict[str, type[NSESentence] | type[LSTMSentence] | type[BagOfWords]] = {
    "nse": NSESentence,
    "lstm": LSTMSentence,
    "bow": BagOfWords,
}


@dataclass
class PairConfig:
    """The model of a pair of sentences."""

    encoder: Literal["nse", "lstm", "bow"] = "nse"
    """What turns a sentence into a vector."""

    size: int = 300
    """k: of word vectors and sentence vectors."""

    hidden: int = 1024
    """Units of the hidden layer that compares the two sentences."""

    dropout: float = 0.0
    """On words, on compositions and on the hidden layer."""

    def __post_init__(self) -> None:
        """Refuse sizes and probabilities that make no model."""
        if self.size < 1 or self.hidden < 1:
            raise ValueError(f"size and hidden must be at least 1, got {self.size} and {self.hidden}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")


class PairClassifier(nn.Module):
    """The paper's model of a sentence pair (section 4.1): one encoder for both, and an MLP over the pair.

    Args:
        config: Encoder and sizes.
        words: Size of the vocabulary; id 0 is padding.
        labels: Number of classes.
    """

    def __init__(self, config: PairConfig, words: int, labels: int):
        super().__init__()
        self.embedding = nn.Embedding(words, config.size, padding_idx=0)
        self.encoder = ENCODERS[config.encoder](config.size, config.dropout)
        self.head = nn.Sequential(
            nn.Linear(4 * config.size, config.hidden),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden, labels),
        )

    def forward(
        self, premise: Tensor, premise_lengths: Tensor, hypothesis: Tensor, lengths: Tensor
    ) -> Tensor:
        """Scores of the labels [B, labels], from ids [B, T] of both sentences and their true lengths [B]."""
        longest = max(premise.shape[1], hypothesis.shape[1])
        both = torch.cat([padded(premise, longest), padded(hypothesis, longest)])  # one batch of 2B sentences
        vectors = self.encoder(self.embedding(both), torch.cat([premise_lengths, lengths]))
        p, h = vectors.chunk(2)
        scores: Tensor = self.head(torch.cat([p, h, p - h, p * h], dim=-1))
        return scores


def padded(ids: Tensor, length: int) -> Tensor:
    """Ids [B, T] with padding up to a length."""
    return nn.functional.pad(ids, (0, length - ids.shape[1]))
