"""Faster copies of models for inference on a CPU: they compute the same function from folded weights.

Without training, weights do not change and need no gradients. Done once per model:

1. Compose is affine and its output goes only to the write LSTM, so the two become one matrix.
2. k is rounded up to a multiple of `LANES` with zeros, which stay zero through every equation, and the
   matrices of a step are packed (`nse.ops.packed_weights`).
3. The comparison of aligned words [a ; b ; a - b ; a * b] is linear in its first three parts: what a and b
   contribute is computed once per sentence, and only a * b once per pair.

And in each batch:

4. Sentences that occur more than once, such as a premise with several hypotheses, are read once.
5. The read LSTM's input product is computed once for each distinct word.
6. Nothing is multiplied past the end of a sentence.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.nn.attention import Alignment, masked_softmax
from nse.nn.encoder import NSE
from nse.nn.pair import PairClassifier
from nse.nn.sentence import SentenceClassifier
from nse.nn.sentence_encoder import Encoded, NSESentence, reverse_sequences, take_last
from nse.ops.packed_weights import PackedLinear
from nse.ops.types import make_mask

LANES = 16
"""Float32 numbers in a cache line: rows that begin at the start of one are multiplied fastest."""


def fold_model(model: nn.Module) -> nn.Module:
    """Make a copy of a model that is faster on a CPU; return the model itself if it cannot be folded."""
    device = next(model.parameters()).device.type
    if device != "cpu" or model.training or not isinstance(model, SentenceClassifier | PairClassifier):
        return model
    if (model.config.encoder, model.config.layers, model.padding) != ("nse", 1, "masked"):
        return model
    return FoldedPair(model) if isinstance(model, PairClassifier) else FoldedSentence(model)


class FoldedNSE:
    """Weights of a one-layer NSE without shared memories, padded to size K.

    Gates are in the order input, forget, output, cell: the three with a sigmoid lie side by side.
    """

    def __init__(self, nse: NSE, K: int):
        k, weights = nse.size, nse.get_weights()
        (read,), (write,) = weights.read, weights.write
        composed = write.ih @ weights.compose  # [4k, 2k], from o and m to the gates
        bias = F.linear(weights.compose_bias, write.ih, write.bias_ih + write.bias_hh)
        self.read_ih = widen_gates(read.ih, K)
        self.read_bias = widen_gates((read.bias_ih + read.bias_hh)[:, None], K, 1)[:, 0]
        self.read_hh = PackedLinear(widen_gates(read.hh, K))
        from_o, from_m = composed.split(k, dim=1)
        to_gates = torch.cat([widen_gates(matrix, K) for matrix in (from_o, from_m, write.hh)], dim=1)
        self.write = PackedLinear(to_gates, widen_gates(bias[:, None], K, 1)[:, 0])  # of [4K, 3K]
        self.start = None if nse.start is None else F.pad(nse.start, (0, K - k))
        self.blank = None if nse.blank is None else F.pad(nse.blank, (0, K - k))


class WordBatch(NamedTuple):
    """The words of a batch of sentences."""

    vectors: Tensor  # [U + 1, K], of the U distinct words, and a row of zeros
    word_index: Tensor  # [B, T], the row of each word; U in the padding
    lengths: Tensor  # [B], in descending order


class SentenceFeatures(NamedTuple):
    """Encoded sentences."""

    words: Tensor  # [B, T, (1 + n) K], word vectors and the outputs of n directions; zero in the padding
    lengths: Tensor  # [B]
    last: Tensor  # [B, n K], outputs after the last word in each direction
    contributions: Tensor  # [B, T, 2k], what each word contributes to comparisons as a and as b; or [B, T, 0]


class FoldedEncoder(nn.Module):
    """From ids to word vectors and outputs: everything before the head of a model with an NSE."""

    def __init__(self, model: SentenceClassifier | PairClassifier):
        super().__init__()
        self.model = model
        assert isinstance(model.encoder, NSESentence)
        self.size, self.padded_size = model.config.size, -(-model.config.size // LANES) * LANES
        self.contribution_weight: Tensor | None = None
        with torch.no_grad():
            self.encoders = [
                FoldedNSE(nse, self.padded_size) for nse in model.encoder.nse if isinstance(nse, NSE)
            ]

    def forward(self, ids: Tensor, lengths: Tensor) -> SentenceFeatures:
        """Encode sentences [B, T], each distinct one once."""
        ids = ids * make_mask(lengths, ids.shape[1])  # sentences are equal whatever their padding holds
        rows, inverse = torch.unique(torch.cat([lengths[:, None], ids], dim=1), dim=0, return_inverse=True)
        order = torch.arange(len(rows) - 1, -1, -1)  # `unique` sorts by length; the longest go first
        lengths, ids = rows[order, 0], rows[order, 1:]
        distinct, index = torch.unique(ids, return_inverse=True)
        vectors = F.pad(self.model.embed(distinct), (0, self.padded_size - self.size, 0, 1))
        mask = make_mask(lengths, ids.shape[1])
        index = index.where(mask, len(distinct))
        batch = WordBatch(vectors, index, lengths)
        outputs, last = self.read(batch, self.encoders[0])
        parts, lasts = [vectors[index], outputs], [last]
        for nse in self.encoders[1:]:
            reversed_index = reverse_sequences(index[..., None], lengths)[..., 0]
            outputs, last = self.read(batch._replace(word_index=reversed_index), nse)
            parts, lasts = [*parts, reverse_sequences(outputs, lengths)], [*lasts, last]
        words = torch.cat(parts, dim=-1)
        contributions = words[..., :0]
        if self.contribution_weight is not None:
            contributions = unpack_words(mask, F.linear(words[mask], self.contribution_weight))
        row = (len(rows) - 1 - inverse).flatten()
        return SentenceFeatures(words[row], lengths[row], torch.cat(lasts, dim=-1)[row], contributions[row])

    def read(self, batch: WordBatch, nse: FoldedNSE) -> tuple[Tensor, Tensor]:
        """Read in one direction; return the outputs [B, T, K] and those after the last word [B, K]."""
        vectors, index, lengths = batch
        B, T = index.shape
        K = self.padded_size
        word_gates = F.linear(
            vectors, nse.read_ih, nse.read_bias
        )  # [U + 1, 4K], each word's part of the gates
        M, score_mask, starts = make_memory(batch, nse)
        start_gates = None if nse.start is None else F.linear(nse.start, nse.read_ih, nse.read_bias)
        outputs = vectors.new_zeros(B, T, K)
        state = vectors.new_zeros(B, 3 * K)  # o, m and h side by side: the input of the write LSTM
        o, m, h = state.split(K, dim=1)
        read_cell, write_cell = vectors.new_zeros(B, K), vectors.new_zeros(B, K)
        running = (torch.arange(T)[:, None] < lengths).sum(dim=1).tolist()  # sentences at each step
        for t, n in enumerate([B] * starts + running, start=-starts):  # start words have t < 0
            if not n:
                break
            if t < 0 and start_gates is not None:
                gates = start_gates[t].repeat(n, 1)
            else:
                gates = word_gates[index[:n, t]]
            step_lstm(nse.read_hh(o[:n], plus=gates), read_cell[:n], o[:n])  # (eq. 1)
            slots = M[:n]
            scores = torch.bmm(o[:n, None], slots.transpose(1, 2))
            scores = scores if score_mask is None else scores.add_(score_mask[:n])
            z = torch.softmax(scores, dim=-1)  # (eq. 2)
            m[:n] = torch.bmm(z, slots)[:, 0]  # (eq. 3)
            gates = nse.write(state[:n])  # (eq. 4)
            step_lstm(gates, write_cell[:n], h[:n])  # (eq. 5)
            slots.lerp_(h[:n, None], z.transpose(1, 2))  # (eq. 6)
            if t >= 0:
                outputs[:n, t] = h[:n]
        return outputs, h.clone()  # a finished sentence's row of h is not written any more

    def remove_words(self, features: SentenceFeatures) -> Encoded:
        """Return the outputs at their true size, without the word vectors."""
        outputs, last = (
            torch.cat([part[..., : self.size] for part in tensor.split(self.padded_size, dim=-1)], dim=-1)
            for tensor in (features.words[..., self.padded_size :], features.last)
        )
        return Encoded(outputs, features.lengths, last)


def make_memory(batch: WordBatch, nse: FoldedNSE) -> tuple[Tensor, Tensor | None, int]:
    """Make the initial memory [B, L, K], its score mask [B, 1, L], and count the start words."""
    slots = batch.vectors[batch.word_index]
    learned = [tensor for tensor in (nse.blank, nse.start) if tensor is not None]
    if learned:
        front = torch.cat(learned)
        slots = torch.cat([front.expand(len(slots), -1, -1), slots], dim=1)
    L, extra = slots.shape[1], sum(len(tensor) for tensor in learned)
    score_mask = None
    if len(batch.lengths) and int(batch.lengths[-1]) + extra < L:
        lowest = torch.finfo(slots.dtype).min
        score_mask = slots.new_zeros(len(slots), 1, L)
        score_mask.masked_fill_(~make_mask(batch.lengths + extra, L)[:, None], lowest)
    return slots, score_mask, 0 if nse.start is None else len(nse.start)


def step_lstm(gates: Tensor, cell: Tensor, h: Tensor) -> None:
    """Update the cell state [n, K] and h [n, K] in place; the gates [n, 4K] are overwritten."""
    K = cell.shape[1]
    i, f, o = gates[:, : 3 * K].sigmoid_().split(K, dim=1)
    cell.mul_(f).addcmul_(i, gates[:, 3 * K :].tanh_())
    torch.mul(o, cell.tanh(), out=h)


class FoldedSentence(nn.Module):
    """A `SentenceClassifier` for inference; its weights must not change any more."""

    def __init__(self, model: SentenceClassifier | PairClassifier):
        super().__init__()
        self.model, self.encoder = model, FoldedEncoder(model)

    def forward(self, sentence: Tensor, lengths: Tensor) -> Tensor:
        """Compute scores [B, labels]."""
        scores: Tensor = self.model.head(self.represent(sentence, lengths))
        return scores

    def represent(self, sentence: Tensor, lengths: Tensor) -> Tensor:
        """Encode and pool sentences [B, d], as `represent` of the model does."""
        features: SentenceFeatures = self.encoder(*self.model.truncate(sentence, lengths))
        return self.encoder.remove_words(features).pool(self.model.config.pool)


class FoldedPair(FoldedSentence):
    """A `PairClassifier` for inference; its weights must not change any more."""

    model: PairClassifier

    def __init__(self, model: PairClassifier):
        super().__init__(model)
        self.comparison = None if model.alignment is None else FoldedAlignment(model.alignment, self.encoder)

    def forward(  # type: ignore[override]  # of two sentences
        self, first: Tensor, first_lengths: Tensor, second: Tensor, second_lengths: Tensor
    ) -> Tensor:
        """Compute scores [B, labels]."""
        model = self.model
        first, first_lengths = model.truncate(first, first_lengths)
        second, second_lengths = model.truncate(second, second_lengths)
        features = self.encode_pair(first, first_lengths, second, second_lengths)
        if self.comparison is None:
            p, h = map(self.encoder.remove_words, features)
        else:
            p, h = self.comparison(*features)
        if model.reader is not None:
            p, h = (model.reader(encoded.outputs, encoded.lengths) for encoded in (p, h))
        return model.score_pair(p, h, (first, first_lengths), (second, second_lengths))

    def encode_pair(
        self, first: Tensor, first_lengths: Tensor, second: Tensor, second_lengths: Tensor
    ) -> tuple[SentenceFeatures, SentenceFeatures]:
        """Encode both sentences of each pair in one batch."""
        n, m = first.shape[1], second.shape[1]
        ids = torch.cat([F.pad(side, (0, max(n, m) - side.shape[1])) for side in (first, second)])
        features: SentenceFeatures = self.encoder(ids, torch.cat([first_lengths, second_lengths]))
        p, h = zip(*(tensor.split([len(first), len(second)]) for tensor in features), strict=True)
        return truncate_features(SentenceFeatures(*p), n), truncate_features(SentenceFeatures(*h), m)


def truncate_features(features: SentenceFeatures, T: int) -> SentenceFeatures:
    """Truncate features to T words."""
    words, contributions = features.words[:, :T], features.contributions[:, :T]
    return features._replace(words=words, contributions=contributions)


class FoldedAlignment(nn.Module):
    """An `Alignment` for inference: from features to comparisons [B, T, k]."""

    def __init__(self, alignment: Alignment, encoder: FoldedEncoder):
        super().__init__()
        with torch.no_grad():
            parts = alignment.compare.weight.chunk(4, dim=1)  # of a, b, a - b and a * b
            a, b, difference, self.product_weight = (
                widen_columns(part, encoder.size, encoder.padded_size) for part in parts
            )
            encoder.contribution_weight = torch.cat([a + difference, b - difference])  # [2k, d]
        self.bias, self.size = alignment.compare.bias, alignment.compare.out_features

    def forward(self, first: SentenceFeatures, second: SentenceFeatures) -> tuple[Encoded, Encoded]:
        """Compare both sentences; the result is zero in the padding."""
        p, h = first.words, second.words
        p_mask, h_mask = make_mask(first.lengths, p.shape[1]), make_mask(second.lengths, h.shape[1])
        scores = torch.bmm(p, h.transpose(1, 2))
        p_compared = self.compare(p_mask, first, masked_softmax(scores, h_mask[:, None]), second)
        h_compared = self.compare(
            h_mask, second, masked_softmax(scores.transpose(1, 2), p_mask[:, None]), first
        )
        return (
            Encoded(p_compared, first.lengths, take_last(p_compared, first.lengths)),
            Encoded(h_compared, second.lengths, take_last(h_compared, second.lengths)),
        )

    def compare(
        self, mask: Tensor, side: SentenceFeatures, weights: Tensor, other: SentenceFeatures
    ) -> Tensor:
        """Compare words [B, T, d] with their matches in the other sentence, by attention weights."""
        products = torch.bmm(weights, other.words).mul_(side.words)
        a, b = side.contributions[..., : self.size], other.contributions[..., self.size :]
        sums = torch.baddbmm(a, weights, b)
        hidden = F.linear(products[mask], self.product_weight, self.bias)
        return unpack_words(mask, hidden.add_(sums[mask]).relu_())


def unpack_words(mask: Tensor, rows: Tensor) -> Tensor:
    """Put a row for each word [N, d] into [B, T, d], zero in the padding."""
    padded = rows.new_zeros(*mask.shape, rows.shape[1])
    padded[mask] = rows
    return padded


def widen_gates(matrix: Tensor, K: int, columns: int = 0) -> Tensor:
    """Pad a matrix of gates [4k, n] with zeros to [4K, columns or K], and reorder the gates."""
    padding = (0, (columns or K) - matrix.shape[1], 0, K - len(matrix) // 4)
    i, f, g, o = (F.pad(gate, padding) for gate in matrix.chunk(4))
    return torch.cat([i, f, o, g])


def widen_columns(matrix: Tensor, size: int, padded_size: int) -> Tensor:
    """Pad each block of k columns of a matrix with zeros to K columns."""
    blocks = matrix.split(size, dim=1)
    return torch.cat([F.pad(block, (0, padded_size - size)) for block in blocks], dim=1).contiguous()
