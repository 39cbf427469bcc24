"""The paper's models of translation (section 4.5): an encoder, and a decoder that attends to its outputs.

LSTM-LSTM, NSE-LSTM and NSE-NSE, in which the decoder reads and writes the memory that the encoder left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.config import Probability, Range
from nse.nn.decoder import LSTMDecoder, NSEDecoder, Source, Standing
from nse.nn.encoder import NSE
from nse.nn.search import Found, beam_search, greedy
from nse.nn.sentence_encoder import run_to_end, turned
from nse.nn.text_model import BEGIN, LONGEST, PAD, TextConfig, TextModel, initial
from nse.ops.step import Cell
from nse.ops.types import Memory


@dataclass
class TranslationConfig(TextConfig):
    """The model of a translation."""

    decoder: Literal["nse", "lstm"] = "nse"
    """What writes the translation. nse: reads and writes the memory of the encoder, which must be an NSE."""

    output_dropout: Probability = 0.0
    """On the last hidden layer, before the scores of words."""

    tied: bool = False
    """Whether the scores of words are products with the words' own vectors."""

    most: Annotated[int, Range(1, LONGEST)] = 25
    """A translation has at most so many words."""

    beam: Annotated[int, Range(1, 100)] = 1
    """How many translations are followed at a time; 1 always takes the best next word."""

    penalty: Annotated[float, Range(0, 5)] = 1.0
    """Translations are compared by their log probability divided by this power of their length."""

    replace: bool = False
    """Whether an unknown word in a translation becomes the source word that was most attended to."""

    def __post_init__(self) -> None:
        """Refuse what makes no model."""
        super().__post_init__()
        if self.encoder == "bow":
            raise ValueError("a bag of words leaves no states to translate from: encoder is nse or lstm")
        if self.decoder == "nse" and self.encoder != "nse":
            raise ValueError('decoder = "nse" needs encoder = "nse": it goes on with the memory of that')
        if self.padding == "paper" or self.layers > 1:
            raise ValueError('translation takes padding = "masked" and layers = 1 (an LSTM has two anyway)')


class EncodedSource(NamedTuple):
    """A source sentence as an encoder leaves it, for `Decoder.begin`."""

    outputs: Tensor  # [B, L, d], a vector per word
    lower: Cell  # at the end of the first LSTM, of an NSE the one that reads
    upper: Cell  # at the end of the second, of an NSE the one that writes
    lengths: Tensor  # [B]
    memories: tuple[Memory, ...] = ()  # what an NSE made of its memory, one per direction


class NSESource(nn.Module):
    """An NSE over the source words."""

    def __init__(self, config: TextConfig):
        super().__init__()
        self.nse = NSE(
            config.size, dropout=config.dropout, blanks=config.blanks, starts=config.starts, **initial(config)
        )

    def forward(self, x: Tensor, lengths: Tensor) -> EncodedSource:
        """Encode words [B, L, k]."""
        found = self.nse(x, lengths)
        lower, upper = ((h[0], c[0]) for h, c in (found.state.read, found.state.write))
        return EncodedSource(found.outputs, lower, upper, lengths, (found.memory,))


class LSTMSource(nn.Module):
    """Two LSTM layers over the source words, dropout on the input of each."""

    def __init__(self, config: TextConfig):
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.lower = nn.LSTM(config.size, config.size, batch_first=True)
        self.upper = nn.LSTM(config.size, config.size, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> EncodedSource:
        """Encode words [B, L, k]."""
        outputs, lower = run_to_end(self.lower, self.dropout(x), lengths)
        outputs, upper = run_to_end(self.upper, self.dropout(outputs), lengths)
        return EncodedSource(outputs, lower, upper, lengths)


class Translator(TextModel):
    """A translator.

    Args:
        config: Encoder, decoder and sizes.
        words: Size of the source vocabulary; id 0 is padding.
        targets: Size of the target vocabulary, with padding, unknown, begin and end as ids 0 to 3.
    """

    def __init__(self, config: TranslationConfig, words: int, targets: int):
        super().__init__(config, words)
        self.config = config
        kind = NSESource if config.encoder == "nse" else LSTMSource
        k, n = config.size, config.directions
        self.encoders = nn.ModuleList([kind(config) for _ in range(n)])
        self.join = nn.Linear(n * k, k) if n > 1 else None
        is_nse, dropout = config.decoder == "nse", config.dropout
        self.decoder = NSEDecoder(k, dropout, n, **initial(config)) if is_nse else LSTMDecoder(k, dropout)
        self.target = nn.Embedding(targets, k, padding_idx=PAD)
        self.hidden = nn.Linear(k, k)
        self.drop_output = nn.Dropout(config.output_dropout)
        self.output = None if config.tied else nn.Linear(k, targets)
        self.bias = nn.Parameter(torch.zeros(targets)) if config.tied else None
        self.start(config)

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """Scores of every next word [B, T + 1, targets] where the translation [B, T] is known."""
        encoded, now = self.decoder.begin(*self.encode_source(source, source_lengths))
        before = torch.cat([target.new_full((len(target), 1), BEGIN), target], dim=1)
        return self.scores(self.decoder.forced(self.target(before), encoded, now))

    def scores(self, attended: Tensor) -> Tensor:
        """Score every word of the target vocabulary, from attentional vectors [..., k]."""
        hidden = self.drop_output(torch.relu(self.hidden(attended)))
        if self.output is None:
            return F.linear(hidden, self.target.weight, self.bias)
        return F.linear(hidden, self.output.weight, self.output.bias)

    def encode_source(self, ids: Tensor, lengths: Tensor) -> EncodedSource:
        """Encode the source; a sentence without words has one pad.

        Of two directions outputs are joined, states averaged, memories side by side.
        """
        ids, lengths = self.cut(ids, lengths.clamp(min=1))
        x = self.vectors(ids)
        forward: EncodedSource = self.encoders[0](x, lengths)
        if self.join is None:
            return forward
        back: EncodedSource = self.encoders[1](turned(x, lengths), lengths)
        outputs = self.join(torch.cat([forward.outputs, turned(back.outputs, lengths)], dim=-1))
        lower, upper = (
            ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in zip(forward[1:3], back[1:3], strict=True)
        )
        return EncodedSource(outputs, lower, upper, lengths, forward.memories + back.memories)

    def represent(self, source: Tensor, lengths: Tensor) -> Tensor:
        """Give each sentence a vector [B, k]: the upper state of the encoder after its last word."""
        return self.encode_source(source, lengths).upper[0]

    @torch.no_grad()
    def translate(
        self, source: Tensor, lengths: Tensor, beam: int | None = None, most: int | None = None
    ) -> Found:
        """Find the best translations.

        Args:
            source: [B, L], ids.
            lengths: [B].
            beam: How many are followed at a time; as configured by default.
            most: The largest number of words; as configured by default.
        """
        encoded, now = self.decoder.begin(*self.encode_source(source, lengths))
        beam, most = beam or self.config.beam, most or self.config.most
        if beam == 1:
            return greedy(self, encoded, now, most)
        return beam_search(self, encoded, now, most, beam, self.config.penalty)

    def next(self, word: Tensor, source: Source, now: Standing) -> tuple[Tensor, Standing, Tensor]:
        """Give log probabilities [B, targets] of the word after this one [B], and where it attended to [B].

        Padding and the begin of a translation are never next.
        """
        now, weights = self.decoder.step(self.target(word), source, now)
        scores = self.scores(now.attended).float()
        scores[:, [PAD, BEGIN]] = float("-inf")
        return scores.log_softmax(dim=-1), now, weights.argmax(dim=-1)
