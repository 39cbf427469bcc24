"""Attention from one sentence to the words of another."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nse.ops.deferred import Linear
from nse.ops.types import real


class Attention(nn.Module):
    """The paper's attention: a vector asks which words of a sentence matter.

    e_l = w . relu(W_h h_l + W_q q + biases), softmax over the words, and their weighted mean.

    Args:
        size: Of the words, of the question and of the hidden layer.
    """

    def __init__(self, size: int):
        super().__init__()
        self.of_words = nn.Linear(size, size)
        self.of_question = nn.Linear(size, size)
        self.score = nn.Linear(size, 1)

    def forward(self, words: Tensor, lengths: Tensor, question: Tensor) -> Tensor:
        """The attended vector [B, k], from words [B, T, k], their lengths [B] and a question [B, k]."""
        hidden = torch.relu(self.of_words(words) + self.of_question(question)[:, None])
        weights = softmax_over(self.score(hidden).squeeze(-1), real(lengths, words.shape[1]))
        attended: Tensor = torch.einsum("bt,btk->bk", weights, words)
        return attended


def attend(
    words: Tensor, keys: Tensor, closed: Tensor, question: Tensor, score: Linear
) -> tuple[Tensor, Tensor]:
    """As `Attention`, for a sentence that is asked again and again.

    Args:
        words: [B, T, k].
        keys: `of_words` of them.
        closed: [B, 1, T], 0 or lowest, as `nse.ops.step.closed` gives it.
        question: `of_question` of what is asked [B, k].
        score: The attention's own.

    Returns:
        The attended vector [B, k], and how much of each word is in it [B, T].
    """
    scores = score(torch.relu(keys + question[:, None])).transpose(1, 2)
    weights = (scores + closed).softmax(dim=-1)
    return torch.bmm(weights, words)[:, 0], weights[:, 0]


class Alignment(nn.Module):
    """Attention both ways, word by word: each word beside what the other sentence has to say to it.

    The words of each sentence are compared with their match in the other, [a ; b ; a - b ; a * b], and the
    comparison is a hidden layer of `size`.

    Args:
        words: Size of the words.
        size: Of the comparisons.
        dropout: On what is compared.
    """

    def __init__(self, words: int, size: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.compare = nn.Linear(4 * words, size)

    def forward(
        self, premise: Tensor, premise_lengths: Tensor, hypothesis: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The comparisons of both sentences, [B, T, size] each, zero past their ends."""
        scores = premise @ hypothesis.transpose(1, 2)  # [B, T of the premise, T of the hypothesis]
        in_premise = real(premise_lengths, premise.shape[1])
        in_hypothesis = real(lengths, hypothesis.shape[1])
        for_premise = softmax_over(scores, in_hypothesis[:, None]) @ hypothesis
        for_hypothesis = softmax_over(scores.transpose(1, 2), in_premise[:, None]) @ premise
        return (
            self.compared(premise, for_premise) * in_premise[..., None],
            self.compared(hypothesis, for_hypothesis) * in_hypothesis[..., None],
        )

    def compared(self, a: Tensor, b: Tensor) -> Tensor:
        """Words and their matches, as one vector each."""
        features = self.dropout(torch.cat([a, b, a - b, a * b], dim=-1))
        compared: Tensor = torch.relu(self.compare(features))
        return compared


def softmax_over(scores: Tensor, allowed: Tensor) -> Tensor:
    """Softmax over the last dimension where it is allowed; all zero where nothing is."""
    lowest = torch.finfo(scores.dtype).min
    weights = scores.masked_fill(~allowed, lowest).softmax(dim=-1)
    return weights * allowed
