"""The paper's model of a sentence (section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nse.nn.sentence_encoder import Encoded
from nse.nn.text_model import HeadConfig, TextModel, head, pooled_size, sentence_encoder


@dataclass
class SentenceConfig(HeadConfig):
    """The model of a sentence."""


class SentenceClassifier(TextModel):
    """The paper's model of a sentence (section 4.3): an encoder, and an MLP over the sentence.

    Args:
        config: Encoder and sizes.
        words: Size of the vocabulary; id 0 is padding.
        labels: Number of classes.
    """

    def __init__(self, config: SentenceConfig, words: int, labels: int):
        super().__init__(config, words)
        self.config = config
        self.encoder = sentence_encoder(config)
        self.head = head(pooled_size(config.size * config.directions, config), config, labels)
        self.start(config)

    def forward(self, sentence: Tensor, lengths: Tensor) -> Tensor:
        """Scores of the labels [B, labels], from ids [B, T] and their true lengths [B]."""
        scores: Tensor = self.head(self.represent(sentence, lengths))
        return scores

    def represent(self, sentence: Tensor, lengths: Tensor) -> Tensor:
        """A vector for each sentence [B, d]: what the head sees of it."""
        sentence, lengths = self.cut(sentence, lengths)
        encoded: Encoded = self.encoder(self.vectors(sentence), lengths)
        return encoded.pooled(self.config.pool)
