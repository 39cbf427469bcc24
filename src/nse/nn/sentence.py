"""The paper's model of a sentence (section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nse.nn.text_model import HeadConfig, HeadModel


@dataclass
class SentenceConfig(HeadConfig):
    """Configuration of a sentence model."""


class SentenceClassifier(HeadModel):
    """The paper's model of a sentence: an encoder, and an MLP over the pooled sentence.

    Args:
        config: Encoder and sizes.
        vocab_size: Size of the vocabulary; id 0 is padding.
        labels: Number of classes.
    """

    def __init__(self, config: SentenceConfig, vocab_size: int, labels: int):
        super().__init__(config, vocab_size)
        self.head = self.make_head(1, config.size * config.directions, labels)
        self.reset_parameters()

    def forward(self, sentence: Tensor, lengths: Tensor) -> Tensor:
        """Compute scores [B, labels] from ids [B, T] and lengths [B]."""
        scores: Tensor = self.head(self.represent(sentence, lengths))
        return scores
