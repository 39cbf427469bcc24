"""Attention from one sentence to the words of another."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nse.ops.deferred import Linear
from nse.ops.types import real


class Attention(nn.Module):
    """The paper's attention: a vector asks which words of a sentence matter.

    e_l = w . relu(W_h h_l + W_q q + biases), softmax over the words, and their weighted mean. Words, question
    and hidden layer are of one size.
    """

    def __init__(self, size: int):
        super().__init__()
        self.of_words = nn.Linear(size, size)
        self.of_question = nn.Linear(size, size)
        self.score = nn.Linear(size, 1)

    def forward(self, words: Tensor, lengths: Tensor, question: Tensor) -> Tensor:
        """Attend [B, k] over words [B, T, k] of these lengths [B], with a question [B, k]."""
        hidden = torch.relu(self.of_words(words) + self.of_question(question)[:, None])
        weights = softmax_over(self.score(hidden).squeeze(-1), real(lengths, words.shape[1]))
        attended: Tensor = torch.einsum("bt,btk->bk", weights, words)
        return attended


def attend(
    words: Tensor,  # [B, T, k]
    keys: Tensor,  # `of_words` of them
    closed: Tensor,  # [B, 1, T], as `nse.ops.step.closed` gives it
    question: Tensor,  # `of_question` of what is asked [B, k]
    score: Linear,
) -> tuple[Tensor, Tensor]:
    """Attend [B, k] as `Attention`, to a sentence that is asked again and again; also the weights [B, T]."""
    scores = score(torch.relu(keys + question[:, None])).transpose(1, 2)
    weights = (scores + closed).softmax(dim=-1)
    return torch.bmm(weights, words)[:, 0], weights[:, 0]


class Alignment(nn.Module):
    """Attention both ways, word by word: each word beside what the other sentence has to say to it.

    The words of each sentence, of `words` numbers, are compared with their match in the other,
    [a ; b ; a - b ; a * b], dropout on it, and the comparison is a hidden layer of `size`.
    """

    def __init__(self, words: int, size: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.compare = nn.Linear(4 * words, size)

    def forward(
        self, premise: Tensor, premise_lengths: Tensor, hypothesis: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compare both sentences, [B, T, size] each, zero past their ends."""
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
        """Compare words with their matches, a vector for each."""
        return torch.relu(self.compare(self.dropout(torch.cat([a, b, a - b, a * b], dim=-1))))


def softmax_over(scores: Tensor, allowed: Tensor) -> Tensor:
    """Take the softmax over the last dimension where it is allowed; all zero where nothing is."""
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(dim=-1) * allowed
