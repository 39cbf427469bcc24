"""The paper's model of a document (section 4.4): an encoder over sentences of encoded words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn

from nse.config import Probability, Range
from nse.nn.sentence_encoder import Encoded, LSTMSentence, NSESentence
from nse.nn.text_model import LONGEST, TextConfig, TextModel, initial, sentence_encoder


@dataclass
class DocumentConfig(TextConfig):
    """The model of a document: `encoder` reads the words of a sentence, `reader` the sentences."""

    reader: Literal["nse", "lstm"] = "nse"
    """What reads the vectors of a document's sentences."""

    longest: Annotated[int, Range(1, LONGEST)] = 96
    """A sentence of more words is read as several of at most so many: no word is lost, the memory bounded."""

    output_dropout: Probability = 0.0
    """On the document's vector, before the scores."""

    def __post_init__(self) -> None:
        """Refuse what makes no model."""
        super().__post_init__()
        if self.padding == "paper" or self.directions == 2:
            raise ValueError('documents are read in one direction, with padding = "masked"')


class DocumentClassifier(TextModel):
    """Two encoders, one on top of the other, and a softmax directly on the document's vector.

    Args:
        config: Encoders and sizes.
        words: Size of the vocabulary; id 0 is padding.
        labels: Number of classes.
    """

    def __init__(self, config: DocumentConfig, words: int, labels: int):
        super().__init__(config, words)
        self.config = config
        self.encoder = sentence_encoder(config)
        kind, settings = (NSESentence, initial(config)) if config.reader == "nse" else (LSTMSentence, {})
        self.reader = kind(config.size, config.dropout, **settings)
        self.head = nn.Sequential(nn.Dropout(config.output_dropout), nn.Linear(config.size, labels))
        self.start(config)

    def forward(self, ids: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
        """Compute the scores of the labels [B, labels].

        Args:
            ids: [S, T], of the sentences of all documents.
            lengths: [S], their true lengths.
            rows: [B, D], which sentences are a document's, in their order.
            counts: [B], how many it has. A document without any has the vector zero.
        """
        scores: Tensor = self.head(self.represent(ids, lengths, rows, counts))
        return scores

    def represent(self, ids: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
        """Give each document a vector [B, k]: what the head sees of it."""
        ids, lengths = self.cut(ids, lengths)
        encoded: Encoded = self.encoder(self.vectors(ids), lengths)
        read: Encoded = self.reader(encoded.last[rows], counts)
        return read.last
