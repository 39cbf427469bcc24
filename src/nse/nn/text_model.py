"""Parts that the models of texts share: configuration, word vectors, sentence encoder, MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.nn.bounds import Probability, Range, check_ranges
from nse.nn.sentence_encoder import (
    BagOfWords,
    Encoded,
    LSTMSentence,
    NSESentence,
    Pool,
    can_share_sentences,
    find_distinct,
)

T = TypeVar("T")
PAD, UNKNOWN, BEGIN, END = range(4)
"""Ids of padding, unknown words, and the begin and end of a translation."""

WORD_LIMIT = 10_000
"""Largest number of words that a sentence may be limited to: time and memory grow with its square."""


@dataclass
class TextConfig:
    """Configuration of word vectors and sentence encoder, which all models of texts share."""

    encoder: Literal["nse", "lstm", "bow"] = "nse"
    """Encoder of a sentence."""

    size: Annotated[int, Range(1, 65_536)] = 300
    """k, the hidden size of the encoder, per direction."""

    layers: Annotated[int, Range(1, 64)] = 1
    """LSTM layers of the encoder; in an NSE, of the read LSTM and of the write LSTM each."""

    embedding_size: Annotated[int, Range(0, 65_536)] = 0
    """Size of the word vectors. If it is not k, a linear layer projects them to k; 0 means k."""

    trainable: bool = True
    """Train the word vectors; false freezes them, as in the paper."""

    directions: Annotated[int, Range(1, 2)] = 1
    """2 makes the encoder bidirectional."""

    embedding_dropout: Probability = 0.0
    """Dropout rate on the word vectors, before the projection and before they become the memory."""

    dropout: Probability = 0.0
    """Dropout rate on the encoder's inputs, the compositions and the hidden layer; never on the memory."""

    padding: Literal["masked", "paper"] = "masked"
    """masked: ignore padding. paper: pad on the left to `max_words` and read padding as words."""

    max_words: Annotated[int, Range(0, WORD_LIMIT)] = 0
    """Truncate sentences to this many words; 0 keeps them whole."""

    blanks: Annotated[int, Range(0, 1_000)] = 0
    """Learned slots added to the memory of an NSE."""

    starts: Annotated[int, Range(0, 1_000)] = 0
    """Learned word vectors put in front of a sentence, for an NSE."""

    init: Literal["uniform", "lookup"] = "uniform"
    """Initialization of an NSE. uniform: as in the paper. lookup: it first finds each word in its memory."""

    init_range: Annotated[float, Range(0, 10)] = 0.0
    """Draw weights uniformly from [-x, x], as the original code; 0 for PyTorch's defaults."""

    projection: Literal["learned", "fixed"] = "learned"
    """Linear layer from `embedding_size` to k. fixed: a random orthogonal matrix, never trained."""

    def __post_init__(self) -> None:
        """Check ranges and combinations."""
        check_ranges(self)
        if self.padding == "paper" and not self.max_words:
            raise ValueError('padding = "paper" needs max_words, such as 32: how far to pad')
        if self.encoder in ("lstm", "bow") and (self.blanks or self.starts):
            raise ValueError("blanks and starts need an NSE as the encoder")
        if self.encoder == "bow" and (self.directions == 2 or self.layers > 1):
            raise ValueError("a bag of words has no directions and no layers")
        if self.init != "uniform" and self.encoder in ("lstm", "bow"):
            raise ValueError(f'init = "{self.init}" needs an NSE as the encoder')
        if self.projection == "fixed" and self.embedding_size in (0, self.size):
            raise ValueError('projection = "fixed" needs an embedding_size other than size')


@dataclass
class HeadConfig(TextConfig):
    """Configuration of a model with an MLP over pooled sentences."""

    pool: Pool = "last"
    """Pooling of the encoder's outputs: the last, the maximum over time, or mean and maximum."""

    hidden: Annotated[int, Range(1, 65_536)] = 1024
    """Size of the classifier's hidden layer."""


class TextModel(nn.Module):
    """Word vectors, projected to the encoder's size: the part that all models of texts share."""

    def __init__(self, config: TextConfig, vocab_size: int):
        super().__init__()
        self.config = config
        embedding_size = config.embedding_size or config.size
        self.embedding = nn.Embedding(vocab_size, embedding_size, padding_idx=PAD)
        self.embedding.weight.requires_grad_(config.trainable)
        self.drop = nn.Dropout(config.embedding_dropout)
        self.projection = nn.Linear(embedding_size, config.size) if embedding_size != config.size else None
        self.padding, self.max_words = config.padding, config.max_words

    def truncate(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Truncate and pad ids [B, T] as configured."""
        if self.max_words:
            ids, lengths = ids[:, : self.max_words], lengths.clamp(max=self.max_words)
        if not ids.shape[1]:  # a batch of empty sentences needs one column, of padding
            ids = F.pad(ids, (0, 1), value=PAD)
        return pad_left(ids, lengths, self.max_words) if self.padding == "paper" else (ids, lengths)

    def embed(self, ids: Tensor) -> Tensor:
        """Look up word vectors [B, T, k]; for answers on a CPU each distinct word is projected once."""
        if self.projection is not None and not self.training and can_share_sentences(ids):
            words, index = ids.unique(return_inverse=True)
            return F.embedding(index, self.projection(self.embedding(words)))
        vectors: Tensor = self.drop(self.embedding(ids))
        return vectors if self.projection is None else self.projection(vectors)

    def reset_parameters(self) -> None:
        """Draw the weights again as configured; each NSE draws its own."""
        config = self.config
        if config.init_range:
            for name, parameter in self.named_parameters():
                if not name.startswith("embedding.") and ".nse." not in name:
                    nn.init.uniform_(parameter, -config.init_range, config.init_range)
        if self.projection is not None and config.projection == "fixed":
            # Fewer dimensions keep size / embedding_size of a vector's squared length: scale it up again.
            nn.init.orthogonal_(
                self.projection.weight, gain=max(1.0, config.embedding_size / config.size) ** 0.5
            )
            nn.init.zeros_(self.projection.bias)
            self.projection.requires_grad_(False)


class HeadModel(TextModel):
    """A text model with an MLP over pooled sentences."""

    config: HeadConfig

    def __init__(self, config: HeadConfig, vocab_size: int):
        super().__init__(config, vocab_size)
        self.encoder = make_sentence_encoder(config)

    def represent(self, sentence: Tensor, lengths: Tensor) -> Tensor:
        """Encode and pool sentences [B, d]; a model of pairs encodes them as it does the first of a pair."""
        sentence, lengths = self.truncate(sentence, lengths)
        if self.training or not can_share_sentences(sentence):
            encoded: Encoded = self.encoder(self.embed(sentence), lengths)
            return encoded.pool(self.config.pool)
        ids, lengths, index = find_distinct(sentence, lengths)
        encoded = self.encoder(self.embed(ids), lengths)
        return encoded.pool(self.config.pool)[index]

    def make_head(self, vectors: int, size: int, labels: int, extra: int = 0) -> nn.Sequential:
        """Make the paper's MLP over this many vectors, pooled from outputs of `size`, and `extra` numbers."""
        hidden, pooled = self.config.hidden, size * (2 if self.config.pool == "mean-max" else 1)
        first, last = nn.Linear(vectors * pooled + extra, hidden), nn.Linear(hidden, labels)
        return nn.Sequential(first, nn.ReLU(), nn.Dropout(self.config.dropout), last)


def make_sentence_encoder(config: TextConfig, shared: int = 0) -> NSESentence | LSTMSentence | BagOfWords:
    """Make the configured sentence encoder."""
    if config.encoder == "lstm":
        return LSTMSentence(config.size, config.dropout, config.directions, config.layers)
    if config.encoder == "bow":
        return BagOfWords(config.dropout)
    return NSESentence(
        config.size,
        config.dropout,
        config.directions,
        shared=shared,
        layers=config.layers,
        padding=config.padding,
        blanks=config.blanks,
        starts=config.starts,
        **make_init_settings(config),
    )


def make_init_settings(config: TextConfig) -> dict[str, Any]:
    """Make the arguments of an `NSE` that say how its weights start."""
    return {"init": config.init} | ({"init_range": config.init_range} if config.init_range else {})


def pad_left(ids: Tensor, lengths: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Move the padding of ids [B, T] to the left, up to `size` in all, and count it as words."""
    ids = F.pad(ids, (0, size - ids.shape[1]), value=PAD)
    index = torch.arange(size, device=ids.device) - (size - lengths)[:, None]
    shifted = ids.gather(1, index.clamp(min=0)).masked_fill(index < 0, PAD)
    return shifted, torch.full_like(lengths, size)


OLD_KEYS = {"bring": "projection", "of_words": "key", "of_question": "query"}
"""Modules that had other names when the shipped models were saved."""


def rename_old_keys(weights: Mapping[str, T]) -> dict[str, T]:
    """Rename the state-dict keys of an older model or checkpoint."""
    renamed = {".".join(OLD_KEYS.get(part, part) for part in k.split(".")): v for k, v in weights.items()}
    return renamed if len(renamed) == len(weights) else dict(weights)
