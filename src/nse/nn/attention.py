"""Attention from one sentence to the words of another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.ops.deferred import Linear
from nse.ops.types import make_mask


class Attention(nn.Module):
    """The paper's attention: scores from a hidden layer over words and query.

    e_l = w . relu(W_h h_l + W_q q + biases), then the mean of the words weighted by softmax(e). Words, query
    and hidden layer have the same size.
    """

    def __init__(self, size: int):
        super().__init__()
        self.key = nn.Linear(size, size)
        self.query = nn.Linear(size, size)
        self.score = nn.Linear(size, 1)

    def forward(self, words: Tensor, lengths: Tensor, query: Tensor) -> Tensor:
        """Attend with queries [B, k] over words [B, T, k] of these lengths [B]; the result is [B, k]."""
        hidden = torch.relu(self.key(words) + self.query(query)[:, None])
        weights = masked_softmax(self.score(hidden).squeeze(-1), make_mask(lengths, words.shape[1]))
        attended: Tensor = torch.einsum("bt,btk->bk", weights, words)
        return attended


def attend(
    words: Tensor, keys: Tensor, score_mask: Tensor, query: Tensor, score: Linear
) -> tuple[Tensor, Tensor]:
    """Attend as `Attention` does, with everything that stays the same from step to step precomputed.

    Args:
        words: [B, T, k].
        keys: [B, T, k], `Attention.key` of the words.
        score_mask: [B, 1, T], from `nse.ops.step.make_score_mask`.
        query: [B, k], `Attention.query` of the query.
        score: `Attention.score` as a linear map.

    Returns:
        The weighted mean of the words [B, k], and the weights [B, T].
    """
    scores = score(torch.relu(keys + query[:, None])).transpose(1, 2)
    weights = (scores + score_mask).softmax(dim=-1)
    return torch.bmm(weights, words)[:, 0], weights[:, 0]


class Alignment(nn.Module):
    """Attention in both directions between two sentences, word by word.

    Each word a is compared with b, the weighted mean of the other sentence's words: a hidden layer of `size`
    units over [a ; b ; a - b ; a * b], with dropout before it. Words are vectors of `input_size`.
    """

    def __init__(self, input_size: int, size: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.compare = nn.Linear(4 * input_size, size)

    def forward(
        self,
        premise: Tensor,
        premise_lengths: Tensor,
        hypothesis: Tensor,
        hypothesis_lengths: Tensor,
        contributions: Sequence[Tensor] = (),
    ) -> tuple[Tensor, Tensor]:
        """Compare both sentences with each other: [B, T, size] each, zero in the padding.

        For answers, `contributions` are those of the words of both sentences, from `compute_contributions`.
        """
        scores = premise @ hypothesis.transpose(1, 2)  # [B, T of the premise, T of the hypothesis]
        premise_mask = make_mask(premise_lengths, premise.shape[1])
        hypothesis_mask = make_mask(hypothesis_lengths, hypothesis.shape[1])
        to_hypothesis = masked_softmax(scores, hypothesis_mask[:, None])
        to_premise = masked_softmax(scores.transpose(1, 2), premise_mask[:, None])
        for_premise, for_hypothesis = to_hypothesis @ hypothesis, to_premise @ premise
        if contributions:
            (p_a, p_b), (h_a, h_b) = (each.chunk(2, dim=2) for each in contributions)
            return (
                self.compare_products(premise * for_premise, p_a + to_hypothesis @ h_b, premise_mask),
                self.compare_products(hypothesis * for_hypothesis, h_a + to_premise @ p_b, hypothesis_mask),
            )
        return (
            self.compare_words(premise, for_premise) * premise_mask[..., None],
            self.compare_words(hypothesis, for_hypothesis) * hypothesis_mask[..., None],
        )

    def compare_words(self, a: Tensor, b: Tensor) -> Tensor:
        """Compare words with their matches in the other sentence."""
        return torch.relu(self.compare(self.dropout(torch.cat([a, b, a - b, a * b], dim=-1))))

    def compute_contributions(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Compute what each word [B, T, d] adds to hidden layers as a and as b: [B, T, 2 size].

        The layer is linear in a, b and a - b: W_a a + W_b b + W_d (a - b) = (W_a + W_d) a + (W_b - W_d) b.
        So a sentence that is in several pairs needs this once.
        """
        a, b, difference, _ = self.compare.weight.chunk(4, dim=1)
        mask = make_mask(lengths, words.shape[1])
        return unpack_words(F.linear(words[mask], torch.cat([a + difference, b - difference])), mask)

    def compare_products(self, products: Tensor, sums: Tensor, mask: Tensor) -> Tensor:
        """Do the same as `compare_words`, without dropout, from a * b and the contributions of a and b."""
        weight = self.compare.weight.chunk(4, dim=1)[3]
        hidden = F.linear(products[mask], weight, self.compare.bias) + sums[mask]
        return unpack_words(torch.relu(hidden), mask)


def unpack_words(rows: Tensor, mask: Tensor) -> Tensor:
    """Put a row for each word [N, d] into [B, T, d], zero where the mask [B, T] is false."""
    padded = rows.new_zeros(*mask.shape, rows.shape[1])
    padded[mask] = rows
    return padded


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Compute the softmax over the last dimension where the mask is true; zero elsewhere."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1) * mask
