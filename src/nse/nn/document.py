"""The paper's model of a document (section 4.4): an encoder over sentences of encoded words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn

from nse.nn.bounds import Probability, Range
from nse.nn.sentence_encoder import Encoded, LSTMSentence, NSESentence
from nse.nn.text_model import WORD_LIMIT, TextConfig, TextModel, make_init_settings, make_sentence_encoder


@dataclass
class DocumentConfig(TextConfig):
    """Configuration of a document model: `encoder` reads the words of a sentence, `reader` the sentences."""

    reader: Literal["nse", "lstm"] = "nse"
    """Encoder of the document, over the vectors of its sentences."""

    max_words: Annotated[int, Range(1, WORD_LIMIT)] = 96
    """Split longer sentences into several of at most this many words, which bounds the memory."""

    output_dropout: Probability = 0.0
    """Dropout rate on the document's vector."""

    def __post_init__(self) -> None:
        """Check ranges and combinations."""
        super().__post_init__()
        if self.padding == "paper" or self.directions == 2:
            raise ValueError('a document model needs directions = 1 and padding = "masked"')


class DocumentClassifier(TextModel):
    """The paper's model of a document: an encoder over words, one over sentences, and a linear layer.

    Args:
        config: Encoders and sizes.
        vocab_size: Size of the vocabulary; id 0 is padding.
        labels: Number of classes.
    """

    def __init__(self, config: DocumentConfig, vocab_size: int, labels: int):
        super().__init__(config, vocab_size)
        self.encoder = make_sentence_encoder(config)
        self.reader = (
            NSESentence(config.size, config.dropout, **make_init_settings(config))
            if config.reader == "nse"
            else LSTMSentence(config.size, config.dropout)
        )
        self.head = nn.Sequential(nn.Dropout(config.output_dropout), nn.Linear(config.size, labels))
        self.reset_parameters()

    def forward(self, ids: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
        """Compute scores [B, labels].

        Args:
            ids: [S, T], the sentences of all documents.
            lengths: [S], their lengths.
            rows: [B, D], the rows of `ids` that make up each document, in order.
            counts: [B], number of sentences per document; a document without any is encoded as zeros.
        """
        scores: Tensor = self.head(self.represent(ids, lengths, rows, counts))
        return scores

    def represent(self, ids: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
        """Encode documents [B, k]: the input of the head."""
        ids, lengths = self.truncate(ids, lengths)
        sentences: Encoded = self.encoder(self.embed(ids), lengths)
        documents: Encoded = self.reader(sentences.last[rows], counts)
        return documents.last
