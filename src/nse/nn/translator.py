"""The paper's models of translation (section 4.5): LSTM-LSTM, NSE-LSTM and NSE-NSE.

The decoder attends over the encoder's outputs; in NSE-NSE it also reads and writes the encoder's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.nn.bounds import Probability, Range
from nse.nn.decoder import DecoderSource, DecoderState, LSTMDecoder, NSEDecoder
from nse.nn.encoder import NSE
from nse.nn.search import Translations, beam_search, greedy
from nse.nn.sentence_encoder import reverse_sequences, run_lstm_to_end
from nse.nn.text_model import BEGIN, PAD, WORD_LIMIT, TextConfig, TextModel, make_init_settings
from nse.ops.step import LayerState
from nse.ops.types import Memory


@dataclass
class TranslationConfig(TextConfig):
    """Configuration of a translator."""

    decoder: Literal["nse", "lstm"] = "nse"
    """Decoder of the translation. nse: reads and writes the memory of the encoder, which must be an NSE."""

    output_dropout: Probability = 0.0
    """Dropout rate on the last hidden layer."""

    tie_embeddings: bool = False
    """Use the target word vectors as the weights of the output layer."""

    max_target_words: Annotated[int, Range(1, WORD_LIMIT)] = 25
    """Maximum length of a translation in words."""

    beam: Annotated[int, Range(1, 100)] = 1
    """Beam size; 1 is greedy search."""

    length_penalty: Annotated[float, Range(0, 5)] = 1.0
    """Rank translations by log probability / length ** length_penalty."""

    replace_unknown: bool = False
    """Replace each unknown word by the source word with the largest attention weight."""

    def __post_init__(self) -> None:
        """Check ranges and combinations."""
        super().__post_init__()
        if self.encoder == "bow":
            raise ValueError('a bag of words has no states for the decoder: set encoder = "nse" or "lstm"')
        if self.decoder == "nse" and self.encoder != "nse":
            raise ValueError('decoder = "nse" needs encoder = "nse", whose memory it reads')
        if self.padding == "paper" or self.layers > 1:
            raise ValueError('translation needs padding = "masked" and layers = 1 (an LSTM always has two)')


class EncodedSource(NamedTuple):
    """An encoded batch of source sentences: the arguments of `Decoder.begin`."""

    outputs: Tensor  # [B, L, d], one per word
    lower: LayerState  # final state of the first LSTM; of an NSE, the read LSTM
    upper: LayerState  # final state of the second; of an NSE, the write LSTM
    lengths: Tensor  # [B]
    memories: tuple[Memory, ...] = ()  # final memories of an NSE, one per direction


class NSESource(nn.Module):
    """An NSE over the source words."""

    def __init__(self, config: TextConfig):
        super().__init__()
        settings = make_init_settings(config)
        self.nse = NSE(
            config.size, dropout=config.dropout, blanks=config.blanks, starts=config.starts, **settings
        )

    def forward(self, x: Tensor, lengths: Tensor) -> EncodedSource:
        """Encode words [B, L, k]."""
        encoding = self.nse(x, lengths)
        lower, upper = ((h[0], c[0]) for h, c in (encoding.state.read, encoding.state.write))
        return EncodedSource(encoding.outputs, lower, upper, lengths, (encoding.memory,))


class LSTMSource(nn.Module):
    """Two LSTM layers over the source words, with dropout on the input of each."""

    def __init__(self, config: TextConfig):
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.lower = nn.LSTM(config.size, config.size, batch_first=True)
        self.upper = nn.LSTM(config.size, config.size, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> EncodedSource:
        """Encode words [B, L, k]."""
        outputs, lower = run_lstm_to_end(self.lower, self.dropout(x), lengths)
        outputs, upper = run_lstm_to_end(self.upper, self.dropout(outputs), lengths)
        return EncodedSource(outputs, lower, upper, lengths)


class Translator(TextModel):
    """A translator.

    Args:
        config: Encoder, decoder and sizes.
        vocab_size: Size of the source vocabulary; id 0 is padding.
        target_vocab_size: Size of the target vocabulary; ids 0 to 3 are padding, unknown, begin and end.
    """

    config: TranslationConfig

    def __init__(self, config: TranslationConfig, vocab_size: int, target_vocab_size: int):
        super().__init__(config, vocab_size)
        make_encoder = NSESource if config.encoder == "nse" else LSTMSource
        k, n = config.size, config.directions
        self.encoders = nn.ModuleList([make_encoder(config) for _ in range(n)])
        self.join = nn.Linear(n * k, k) if n > 1 else None
        self.decoder = (
            NSEDecoder(k, config.dropout, n, **make_init_settings(config))
            if config.decoder == "nse"
            else LSTMDecoder(k, config.dropout)
        )
        self.target = nn.Embedding(target_vocab_size, k, padding_idx=PAD)
        self.hidden = nn.Linear(k, k)
        self.drop_output = nn.Dropout(config.output_dropout)
        self.output = None if config.tie_embeddings else nn.Linear(k, target_vocab_size)
        self.bias = nn.Parameter(torch.zeros(target_vocab_size)) if config.tie_embeddings else None
        self.reset_parameters()

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """Compute scores of every next word [B, T + 1, target_vocab_size] for known translations [B, T]."""
        encoded, state = self.decoder.begin(*self.encode_source(source, source_lengths))
        previous = torch.cat([target.new_full((len(target), 1), BEGIN), target], dim=1)
        return self.score_words(self.decoder.teacher_force(self.target(previous), encoded, state))

    def score_words(self, attended: Tensor) -> Tensor:
        """Score every word of the target vocabulary from attentional vectors [..., k]."""
        hidden = self.drop_output(torch.relu(self.hidden(attended)))
        if self.output is None:
            return F.linear(hidden, self.target.weight, self.bias)
        return F.linear(hidden, self.output.weight, self.output.bias)

    def encode_source(self, ids: Tensor, lengths: Tensor) -> EncodedSource:
        """Encode the source; a sentence without words is read as one pad.

        Two directions have their outputs joined, their states averaged, and their memories side by side.
        """
        ids, lengths = self.truncate(ids, lengths.clamp(min=1))
        x = self.embed(ids)
        forward: EncodedSource = self.encoders[0](x, lengths)
        if self.join is None:
            return forward
        back: EncodedSource = self.encoders[1](reverse_sequences(x, lengths), lengths)
        outputs = self.join(torch.cat([forward.outputs, reverse_sequences(back.outputs, lengths)], dim=-1))
        lower, upper = (
            ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in zip(forward[1:3], back[1:3], strict=True)
        )
        return EncodedSource(outputs, lower, upper, lengths, forward.memories + back.memories)

    def represent(self, source: Tensor, lengths: Tensor) -> Tensor:
        """Encode sentences [B, k]: the encoder's upper state after the last word."""
        return self.encode_source(source, lengths).upper[0]

    @torch.no_grad()
    def translate(
        self, source: Tensor, lengths: Tensor, beam: int | None = None, max_length: int | None = None
    ) -> Translations:
        """Translate a batch of sentences.

        Args:
            source: [B, L], ids.
            lengths: [B].
            beam: Number of candidates per sentence; as configured by default.
            max_length: Largest number of words; as configured by default.
        """
        with torch.autocast(source.device.type, enabled=False):  # takes little time, and every step reads it
            encoded_source = self.encode_source(source, lengths)
        encoded, state = self.decoder.begin(*encoded_source)
        beam, max_length = beam or self.config.beam, max_length or self.config.max_target_words
        if beam == 1:
            return greedy(self, encoded, state, max_length)
        return beam_search(self, encoded, state, max_length, beam, self.config.length_penalty)

    def predict_next(
        self, word: Tensor, source: DecoderSource, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """Compute log probabilities [B, target_vocab_size] of the word after this one [B].

        Padding and the begin of a translation have probability 0.

        Returns:
            The log probabilities, the next state, and the position of the most attended source word [B].
        """
        state, weights = self.decoder.step(self.target(word), source, state)
        scores = self.score_words(state.attended).float()
        scores[:, [PAD, BEGIN]] = float("-inf")
        return scores.log_softmax(dim=-1), state, weights.argmax(dim=-1)
