"""Models as a CPU answers with them: the same function, weights folded once, nothing computed twice.

Training changes weights at every step and needs gradients; an answer needs neither. So, once for all batches:

1. Compose is affine and leads into the write LSTM alone: the two are one matrix.
2. k is rounded up to a multiple of `LANES` with zeros, which stay zero through every equation, and the
   matrices of a step are packed: products are faster so.
3. The comparison of aligned words [a ; b ; a - b ; a * b] is linear in its first three parts: what a and b
   add is computed for each sentence alone, and only a * b for the pair.

And in each batch:

4. Sentences that occur more than once are read once, as the premise of several hypotheses.
5. What the read LSTM makes of a word by itself is computed once for each different word.
6. Past the end of a sentence nothing is multiplied.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.nn.attention import Alignment, softmax_over
from nse.nn.encoder import NSE
from nse.nn.pair import PairClassifier, unread
from nse.nn.sentence import SentenceClassifier
from nse.nn.sentence_encoder import Encoded, NSESentence, turned
from nse.ops.packed_weights import Product
from nse.ops.types import real

LANES = 16
"""Numbers in a cache line: rows that begin at its edge are multiplied fastest."""


def folded(model: nn.Module) -> nn.Module:
    """Make a model that gives the same answers faster on a CPU; the same model where none is known."""
    device = next(model.parameters()).device.type
    if device != "cpu" or model.training or not isinstance(model, SentenceClassifier | PairClassifier):
        return model
    if (model.config.encoder, model.config.layers, model.padding) != ("nse", 1, "masked"):
        return model
    return FoldedPair(model) if isinstance(model, PairClassifier) else FoldedSentence(model)


class FoldedNSE:
    """The weights of an NSE of one layer that shares no memory, K wide, for `FoldedWords`.

    Gates come in the order input, forget, output, cell: the three that are squashed alike lie side by side.
    """

    def __init__(self, nse: NSE, K: int):
        k, weights = nse.size, nse.weights()
        (read,), (write,) = weights.read, weights.write
        composed = write.ih @ weights.compose  # [4k, 2k], from o and m to the gates
        bias = F.linear(weights.compose_bias, write.ih, write.bias_ih + write.bias_hh)
        self.read_ih = widen_gates(read.ih, K)
        self.read_bias = widen_gates((read.bias_ih + read.bias_hh)[:, None], K, 1)[:, 0]
        self.read_hh = Product(widen_gates(read.hh, K))
        from_o, from_m = composed.split(k, dim=1)
        onto_gates = torch.cat(
            [widen_gates(each, K) for each in (from_o, from_m, write.hh)], dim=1
        )  # [4K, 3K]
        self.write = Product(onto_gates, widen_gates(bias[:, None], K, 1)[:, 0])
        self.start = None if nse.start is None else F.pad(nse.start, (0, K - k))
        self.blank = None if nse.blank is None else F.pad(nse.blank, (0, K - k))


class Words(NamedTuple):
    """The words of a batch."""

    vectors: Tensor  # [U + 1, K], of the different words, and zeros
    place: Tensor  # [B, T], which of them each word is; U past a sentence's end
    lengths: Tensor  # [B], falling: longer sentences first


class Side(NamedTuple):
    """Sentences, read."""

    words: Tensor  # [B, T, (1 + n) K], words and the outputs of n directions; zero past a sentence's end
    lengths: Tensor  # [B]
    last: Tensor  # [B, n K], the outputs after the last word in each direction
    alone: Tensor  # [B, T, 2k], what the words add to comparisons, if there are some


class FoldedWords(nn.Module):
    """From ids to words and outputs, side by side: what comes before the head of a model with an NSE."""

    def __init__(self, model: SentenceClassifier | PairClassifier):
        super().__init__()
        self.model = model
        assert isinstance(model.encoder, NSESentence)
        self.size, self.wide = model.config.size, -(-model.config.size // LANES) * LANES
        self.alone: Tensor | None = None
        with torch.no_grad():
            self.folded = [FoldedNSE(nse, self.wide) for nse in model.encoder.nse if isinstance(nse, NSE)]

    def forward(self, ids: Tensor, lengths: Tensor) -> Side:
        """Read sentences [B, T], each different one once."""
        ids = ids * real(lengths, ids.shape[1])  # padding is padding, whatever it looks like
        rows, inverse = torch.unique(torch.cat([lengths[:, None], ids], dim=1), dim=0, return_inverse=True)
        order = torch.arange(len(rows) - 1, -1, -1)  # sorted by length; those with most steps go first
        lengths, ids = rows[order, 0], rows[order, 1:]
        seen, place = torch.unique(ids, return_inverse=True)
        vectors = F.pad(self.model.vectors(seen), (0, self.wide - self.size, 0, 1))
        is_word = real(lengths, ids.shape[1])
        place = place.where(is_word, len(seen))
        words = Words(vectors, place, lengths)
        outputs, last = self.read(words, self.folded[0])
        found, ends = [vectors[place], outputs], [last]
        for nse in self.folded[1:]:
            outputs, last = self.read(words._replace(place=turned(place[..., None], lengths)[..., 0]), nse)
            found, ends = [*found, turned(outputs, lengths)], [*ends, last]
        both = torch.cat(found, dim=-1)
        alone = both[..., :0]
        if self.alone is not None:
            alone = place_words(is_word, F.linear(both[is_word], self.alone))
        index = (len(rows) - 1 - inverse).flatten()
        return Side(both[index], lengths[index], torch.cat(ends, dim=-1)[index], alone[index])

    def read(self, words: Words, nse: FoldedNSE) -> tuple[Tensor, Tensor]:
        """Read in one direction: the outputs [B, T, K], and those after the last word [B, K]."""
        vectors, place, lengths = words
        B, T = place.shape
        K = self.wide
        alone = F.linear(vectors, nse.read_ih, nse.read_bias)  # [U + 1, 4K], what a word adds to the gates
        M, closed, starts = memory(words, nse)
        given = None if nse.start is None else F.linear(nse.start, nse.read_ih, nse.read_bias)
        outputs = vectors.new_zeros(B, T, K)
        state = vectors.new_zeros(B, 3 * K)  # o, m and h, side by side, as the write LSTM takes them
        o, m, h = state.split(K, dim=1)
        cell_of_read, cell_of_write = vectors.new_zeros(B, K), vectors.new_zeros(B, K)
        steps = (torch.arange(T)[:, None] < lengths).sum(dim=1).tolist()  # how many sentences have a word
        for t, n in enumerate([B] * starts + steps):
            if not n:
                break
            now = t - starts
            gates = alone[place[:n, now]] if given is None or now >= 0 else given[t].repeat(n, 1)
            lstm(nse.read_hh(o[:n], plus=gates), cell_of_read[:n], o[:n])  # (eq. 1)
            slots = M[:n]
            scores = torch.bmm(o[:n, None], slots.transpose(1, 2))
            z = torch.softmax(scores if closed is None else scores.add_(closed[:n]), dim=-1)  # (eq. 2)
            m[:n] = torch.bmm(z, slots)[:, 0]  # (eq. 3)
            gates = nse.write(state[:n])  # (eq. 4)
            lstm(gates, cell_of_write[:n], h[:n])  # (eq. 5)
            slots.lerp_(h[:n, None], z.transpose(1, 2))  # (eq. 6)
            if now >= 0:
                outputs[:n, now] = h[:n]
        return outputs, h.clone()  # where a sentence ends, its row of h is left alone

    def outputs_alone(self, side: Side) -> Encoded:
        """Leave the outputs alone, of their true size, without the words and what fills them up."""
        outputs, last = (
            torch.cat([part[..., : self.size] for part in each.split(self.wide, dim=-1)], dim=-1)
            for each in (side.words[..., self.wide :], side.last)
        )
        return Encoded(outputs, side.lengths, last)


def memory(words: Words, nse: FoldedNSE) -> tuple[Tensor, Tensor | None, int]:
    """Make the memory at first [B, L, K], what closes its padding [B, 1, L], and how many start words."""
    slots, front = words.vectors[words.place], [each for each in (nse.blank, nse.start) if each is not None]
    if front:
        before = torch.cat(front)
        slots = torch.cat([before.expand(len(slots), -1, -1), slots], dim=1)
    L, more = slots.shape[1], sum(len(each) for each in front)
    closed = None
    if len(words.lengths) and int(words.lengths[-1]) + more < L:
        lowest = torch.finfo(slots.dtype).min
        closed = slots.new_zeros(len(slots), 1, L)
        closed.masked_fill_(~real(words.lengths + more, L)[:, None], lowest)
    return slots, closed, 0 if nse.start is None else len(nse.start)


def lstm(gates: Tensor, cell: Tensor, h: Tensor) -> None:
    """Turn the cell [n, K] and h [n, K] into the next ones, by gates [n, 4K], which are used up."""
    K = cell.shape[1]
    i, f, o = gates[:, : 3 * K].sigmoid_().split(K, dim=1)
    cell.mul_(f).addcmul_(i, gates[:, 3 * K :].tanh_())
    torch.mul(o, cell.tanh(), out=h)


class FoldedSentence(nn.Module):
    """A `SentenceClassifier`, for answers; its weights must not change any more."""

    def __init__(self, model: SentenceClassifier | PairClassifier):
        super().__init__()
        self.model, self.words = model, FoldedWords(model)

    def forward(self, sentence: Tensor, lengths: Tensor) -> Tensor:
        """Compute the scores of the labels [B, labels]."""
        scores: Tensor = self.model.head(self.represent(sentence, lengths))
        return scores

    def represent(self, sentence: Tensor, lengths: Tensor) -> Tensor:
        """Encode each sentence by itself [B, d], as `represent` of the model."""
        read: Side = self.words(*self.model.cut(sentence, lengths))
        return self.words.outputs_alone(read).pooled(self.model.config.pool)


class FoldedPair(FoldedSentence):
    """A `PairClassifier`, for answers; its weights must not change any more."""

    model: PairClassifier

    def __init__(self, model: PairClassifier):
        super().__init__(model)
        self.comparison = None if model.alignment is None else Comparison(model.alignment, self.words)

    def forward(  # type: ignore[override]  # of two sentences
        self, first: Tensor, first_lengths: Tensor, second: Tensor, second_lengths: Tensor
    ) -> Tensor:
        """Compute the scores of the labels [B, labels]."""
        model = self.model
        first, first_lengths = model.cut(first, first_lengths)
        second, second_lengths = model.cut(second, second_lengths)
        sides = self.both(first, first_lengths, second, second_lengths)
        if self.comparison is None:
            one, two = map(self.words.outputs_alone, sides)
        else:
            one, two = self.comparison(*sides)
        if model.reader is not None:
            one, two = (model.reader(each.outputs, each.lengths) for each in (one, two))
        return model.score(one, two, ((first, first_lengths), (second, second_lengths)))

    def both(
        self, first: Tensor, first_lengths: Tensor, second: Tensor, second_lengths: Tensor
    ) -> tuple[Side, Side]:
        """Read both sentences of each pair as one batch."""
        n, m = first.shape[1], second.shape[1]
        ids = torch.cat([F.pad(each, (0, max(n, m) - each.shape[1])) for each in (first, second)])
        found: Side = self.words(ids, torch.cat([first_lengths, second_lengths]))
        words, lengths, last, alone = (each.split([len(first), len(second)]) for each in found)
        one = Side(words[0][:, :n], lengths[0], last[0], alone[0][:, :n])
        return one, Side(words[1][:, :m], lengths[1], last[1], alone[1][:, :m])


class Comparison(nn.Module):
    """An `Alignment`, for answers: from words and outputs side by side to comparisons [B, T, k]."""

    def __init__(self, alignment: Alignment, words: FoldedWords):
        super().__init__()
        with torch.no_grad():
            parts = alignment.compare.weight.chunk(4, dim=1)  # of a, b, a - b and a * b
            a, b, difference, self.product = (widen_columns(each, words.size, words.wide) for each in parts)
            words.alone = torch.cat([a + difference, b - difference])  # [2k, d]
        self.bias, self.size = alignment.compare.bias, alignment.compare.out_features

    def forward(self, first: Side, second: Side) -> tuple[Encoded, Encoded]:
        """Compare both sentences, zero past their ends."""
        p, h = first.words, second.words
        in_p, in_h = real(first.lengths, p.shape[1]), real(second.lengths, h.shape[1])
        scores = torch.bmm(p, h.transpose(1, 2))
        for_p = softmax_over(scores, in_h[:, None])
        for_h = softmax_over(scores.transpose(1, 2), in_p[:, None])
        return (
            unread(self.compare(in_p, first, for_p, second), first.lengths),
            unread(self.compare(in_h, second, for_h, first), second.lengths),
        )

    def compare(self, real: Tensor, side: Side, weights: Tensor, other: Side) -> Tensor:
        """Compare words [B, T, d] with their matches among the others, by these weights."""
        features = torch.bmm(weights, other.words).mul_(side.words)
        sums = torch.baddbmm(side.alone[..., : self.size], weights, other.alone[..., self.size :])
        found = F.linear(features[real], self.product, self.bias)
        return place_words(real, found.add_(sums[real]).relu_())


def place_words(real: Tensor, found: Tensor) -> Tensor:
    """Put what was found of the words [N, d] in their places [B, T, d], zero past a sentence's end."""
    placed = found.new_zeros(*real.shape, found.shape[1])
    placed[real] = found
    return placed


def widen_gates(matrix: Tensor, K: int, columns: int = 0) -> Tensor:
    """Fill up a matrix to gates [4k, n] with zeros to [4K, columns], or [4K, K], and reorder the gates."""
    padding = (0, (columns or K) - matrix.shape[1], 0, K - len(matrix) // 4)
    i, f, g, o = (F.pad(gate, padding) for gate in matrix.chunk(4))
    return torch.cat([i, f, o, g])


def widen_columns(matrix: Tensor, size: int, wide: int) -> Tensor:
    """Fill up a matrix [n, blocks of k] with zeros to blocks of K."""
    blocks = matrix.split(size, dim=1)
    return torch.cat([F.pad(each, (0, wide - size)) for each in blocks], dim=1).contiguous()
