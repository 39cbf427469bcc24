"""The paper's models of a pair of sentences (sections 4.1 and 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.nn.attention import Alignment, Attention
from nse.nn.sentence_encoder import Encoded, NSESentence, can_share_sentences, find_distinct, take_last
from nse.nn.text_model import UNKNOWN, HeadConfig, HeadModel, make_init_settings, make_sentence_encoder
from nse.ops.types import make_mask

Text = tuple[Tensor, Tensor]
"""Ids [B, T] and lengths [B] of sentences."""


@dataclass
class PairConfig(HeadConfig):
    """Configuration of a model of sentence pairs."""

    encoder: Literal["nse", "mma", "lstm", "bow"] = "nse"  # type: ignore[assignment]  # one choice more
    """Encoder of a sentence. mma: two NSEs, the second also reads and writes the first one's memory."""

    attention: Literal["none", "paper", "aligned"] = "none"
    """paper: the second sentence attends over the first. aligned: each word over the other sentence."""

    reader: Literal["none", "nse"] = "none"
    """Second encoder, over the aligned words, before pooling."""

    word_overlap: bool = False
    """Give the classifier the fraction of the second sentence's words that the first has, also by IDF."""

    def __post_init__(self) -> None:
        """Check ranges and combinations."""
        super().__post_init__()
        if self.reader != "none" and self.attention != "aligned":
            raise ValueError(f'reader = "{self.reader}" needs attention = "aligned"')
        if self.attention == "aligned" and self.pool == "last" and self.reader == "none":
            raise ValueError('attention = "aligned" without a reader needs pool = "max" or "mean-max"')
        if self.attention == "paper" and self.pool == "mean-max":
            raise ValueError('attention = "paper" needs pool = "last" or "max"')


class PairClassifier(HeadModel):
    """The paper's models of a sentence pair: encoders, and an MLP over [p ; h ; p - h ; p * h].

    NSE: one encoder for both sentences. MMA-NSE: a second encoder for the second sentence, which also reads
    and writes the memory of the first. MMA-NSE attention: p is the attention of h over the first sentence.

    Args:
        config: Encoder and sizes.
        vocab_size: Size of the vocabulary; id 0 is padding.
        labels: Number of scores: one per class, or one to rank by.
    """

    config: PairConfig
    rarity: Tensor  # [vocab_size], weight of each word for `measure_overlap`

    def __init__(self, config: PairConfig, vocab_size: int, labels: int):
        super().__init__(config, vocab_size)
        self.second = make_sentence_encoder(config, shared=1) if config.encoder == "mma" else None
        output_size = config.size * config.directions
        self.attention = Attention(output_size) if config.attention == "paper" else None
        self.alignment: Alignment | None = None
        self.reader: NSESentence | None = None
        if config.attention == "aligned":
            self.alignment = Alignment(config.size + output_size, config.size, config.dropout)
            output_size = config.size
        if config.reader != "none":
            settings = make_init_settings(config)
            self.reader = NSESentence(config.size, config.dropout, config.directions, **settings)
            output_size = config.size * config.directions
        if config.word_overlap:
            self.register_buffer("rarity", torch.ones(vocab_size))
        self.head = self.make_head(4, output_size, labels, extra=2 if config.word_overlap else 0)
        self.reset_parameters()

    def forward(self, first: Tensor, first_lengths: Tensor, second: Tensor, second_lengths: Tensor) -> Tensor:
        """Compute scores [B, labels] from ids [B, T] and lengths [B] of both sentences."""
        first, first_lengths = self.truncate(first, first_lengths)
        second, second_lengths = self.truncate(second, second_lengths)
        texts = (first, first_lengths), (second, second_lengths)
        if self.second is None and not self.training and can_share_sentences(first):
            p, h = self.encode_distinct(*texts)
        else:
            x, y = self.embed(first), self.embed(second)
            p, h = self.encode_pair(x, first_lengths, y, second_lengths)
            if self.alignment is not None:
                p, h = self.align_pair(self.alignment, p.concat_embeddings(x), h.concat_embeddings(y))
        if self.reader is not None:
            p, h = encode_as_one_batch(self.reader, p.outputs, p.lengths, h.outputs, h.lengths)
        return self.score_pair(p, h, *texts)

    def encode_distinct(self, first: Text, second: Text) -> tuple[Encoded, Encoded]:
        """Encode and compare both sentences as in training, but each distinct sentence of the batch once."""
        sizes = [ids.shape[1] for ids, _ in (first, second)]
        ids = torch.cat([F.pad(ids, (0, max(sizes) - ids.shape[1])) for ids, _ in (first, second)])
        ids, lengths, index = find_distinct(ids, torch.cat([first[1], second[1]]))
        x = self.embed(ids)
        encoded: Encoded = self.encoder(x, lengths)
        sides = list(zip(index.split([len(first[0]), len(second[0])]), sizes, strict=True))
        if self.alignment is None:
            p, h = (encoded.select(*side) for side in sides)
            return p, h
        words = encoded.concat_embeddings(x)
        contributions = self.alignment.compute_contributions(words.outputs, words.lengths)
        p, h = (words.select(*side) for side in sides)
        return self.align_pair(self.alignment, p, h, [contributions[:, :size][rows] for rows, size in sides])

    def encode_pair(
        self, x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor
    ) -> tuple[Encoded, Encoded]:
        """Encode the word vectors [B, T, k] of both sentences."""
        if self.second is not None:
            first = self.encoder(x, x_lengths)
            return first, self.second(y, y_lengths, first.memories)
        return encode_as_one_batch(self.encoder, x, x_lengths, y, y_lengths)

    def align_pair(
        self, alignment: Alignment, p: Encoded, h: Encoded, contributions: Sequence[Tensor] = ()
    ) -> tuple[Encoded, Encoded]:
        """Compare each word with its match in the other sentence; see `Alignment` for `contributions`."""
        a, b = alignment(p.outputs, p.lengths, h.outputs, h.lengths, contributions)
        return Encoded(a, p.lengths, take_last(a, p.lengths)), Encoded(b, h.lengths, take_last(b, h.lengths))

    def score_pair(self, p: Encoded, h: Encoded, first: Text, second: Text) -> Tensor:
        """Compute scores [B, labels] from both encoded sentences; the texts are for counting shared words."""
        p_vector, h_vector = p.pool(self.config.pool), h.pool(self.config.pool)
        if self.attention is not None:
            p_vector = self.attention(p.outputs, p.lengths, h_vector)
        features = [p_vector, h_vector, p_vector - h_vector, p_vector * h_vector]
        if self.config.word_overlap:
            features.append(measure_overlap(first, second, self.rarity).to(p_vector.dtype))
        scores: Tensor = self.head(torch.cat(features, dim=-1))
        return scores


def encode_as_one_batch(
    encoder: nn.Module, x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor
) -> tuple[Encoded, Encoded]:
    """Encode two batches of sentences [B, T, k] in one call."""
    if torch.compiler.is_compiling():  # the compiler would take the sizes of the split for constants
        return encoder(x, x_lengths), encoder(y, y_lengths)
    T = max(x.shape[1], y.shape[1])
    batch = torch.cat([F.pad(words, (0, 0, 0, T - words.shape[1])) for words in (x, y)])
    encoded: Encoded = encoder(batch, torch.cat([x_lengths, y_lengths]))
    outputs, lengths, last = (tensor.split([len(x), len(y)]) for tensor in encoded[:3])
    first = Encoded(outputs[0][:, : x.shape[1]], lengths[0], last[0])
    return first, Encoded(outputs[1][:, : y.shape[1]], lengths[1], last[1])


def measure_overlap(first: Text, second: Text, rarity: Tensor) -> Tensor:
    """Compute the fraction of the second text's known words that are in the first: plain and by rarity."""
    (x, x_known), (y, y_known) = (
        (ids, (ids > UNKNOWN) & make_mask(lengths, ids.shape[1])) for ids, lengths in (first, second)
    )
    same = (x[:, :, None] == y[:, None, :]) & x_known[:, :, None]  # [B, T of first, T of second]
    shared = (same.any(dim=1) & y_known).to(rarity.dtype)
    weightings = y_known.to(rarity.dtype), rarity[y] * y_known
    fractions = [(shared * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-6) for weights in weightings]
    return torch.stack(fractions, dim=1)
