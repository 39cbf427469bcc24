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
from nse.nn.pair import PairClassifier, shared_words, unread
from nse.nn.sentence import SentenceClassifier
from nse.nn.sentence_encoder import Encoded, NSESentence, turned
from nse.nn.text_model import TextModel
from nse.ops.packed_weights import Product
from nse.ops.types import real

LANES = 16
"""Numbers in a cache line: rows that begin at its edge are multiplied fastest."""


def folded(model: nn.Module) -> nn.Module:
    """A model that gives the same answers faster on a CPU; the same model where none is known."""
    device = next(model.parameters()).device.type
    if device != "cpu" or not isinstance(model, TextModel) or model.padding != "masked":
        return model
    if not isinstance(getattr(model, "encoder", None), NSESentence) or model.training:
        return model
    if isinstance(model, SentenceClassifier) and model.config.layers == 1:
        return FoldedSentence(model)
    if isinstance(model, PairClassifier) and model.config.layers == 1 and model.config.encoder == "nse":
        return FoldedPair(model)
    return model


class FoldedNSE:
    """The weights of an NSE of one layer that shares no memory, for `FoldedWords`.

    Gates come in the order input, forget, output, cell, so that the three that are squashed alike lie side by
    side.

    Args:
        nse: The encoder.
    """

    def __init__(self, nse: NSE):
        k, K = nse.size, rounded_up(nse.size)
        weights = nse.weights()
        (read,), (write,) = weights.read, weights.write
        composed = write.ih @ weights.compose  # [4k, 2k], from o and m to the gates
        bias = F.linear(weights.compose_bias, write.ih, write.bias_ih + write.bias_hh)
        self.read_ih = widened(read.ih, K)
        self.read_bias = widened((read.bias_ih + read.bias_hh)[:, None], 1, K)[:, 0]
        self.read_hh = Product(widened(read.hh, K))
        from_o, from_m = composed.split(k, dim=1)
        onto_gates = torch.cat([widened(each, K) for each in (from_o, from_m, write.hh)], dim=1)  # [4K, 3K]
        self.write = Product(onto_gates, widened(bias[:, None], 1, K)[:, 0])
        self.start = None if nse.start is None else F.pad(nse.start, (0, K - k))
        self.blank = None if nse.blank is None else F.pad(nse.blank, (0, K - k))


class Words(NamedTuple):
    """The words of a batch.

    Attributes:
        vectors: [U + 1, K], of the different words, and zeros.
        place: [B, T], which of them each word is; U past a sentence's end.
        lengths: [B], falling: longer sentences first.
    """

    vectors: Tensor
    place: Tensor
    lengths: Tensor


class Side(NamedTuple):
    """Sentences, read.

    Attributes:
        words: [B, T, (1 + n) K], the words and beside them the outputs of each of n directions; zero past a
            sentence's end.
        lengths: [B].
        last: [B, n K], the outputs after the last word in each direction.
        alone: [B, T, 2k], what the words add to comparisons, if there are some.
    """

    words: Tensor
    lengths: Tensor
    last: Tensor
    alone: Tensor


class FoldedWords(nn.Module):
    """From ids to words and outputs, side by side: what comes before the head of a model.

    Args:
        model: A model of texts whose encoder is an `NSESentence`.
    """

    def __init__(self, model: SentenceClassifier | PairClassifier):
        super().__init__()
        self.model = model
        assert isinstance(model.encoder, NSESentence)
        self.size, self.wide = model.config.size, rounded_up(model.config.size)
        self.alone: Tensor | None = None
        with torch.no_grad():
            self.folded = [FoldedNSE(nse) for nse in model.encoder.nse if isinstance(nse, NSE)]

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
            alone = of_words(is_word, F.linear(both[is_word], self.alone))
        index = (len(rows) - 1 - inverse).flatten()
        return Side(both[index], lengths[index], torch.cat(ends, dim=-1)[index], alone[index])

    def read(self, words: Words, nse: FoldedNSE) -> tuple[Tensor, Tensor]:
        """The outputs [B, T, K] of one direction, and those after the last word [B, K]."""
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


def memory(words: Words, nse: FoldedNSE) -> tuple[Tensor, Tensor | None, int]:
    """The memory at first [B, L, K], what closes its padded slots [B, 1, L], and how many start words."""
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
    """One step: the cell [n, K] and h [n, K] become the next ones, from gates [n, 4K], which are used up."""
    K = cell.shape[1]
    i, f, o = gates[:, : 3 * K].sigmoid_().split(K, dim=1)
    cell.mul_(f).addcmul_(i, gates[:, 3 * K :].tanh_())
    torch.mul(o, cell.tanh(), out=h)


class FoldedSentence(nn.Module):
    """A `SentenceClassifier`, for answers.

    Args:
        model: The model, whose weights must not change any more.
    """

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
        return trimmed(read, self.words).pooled(self.model.config.pool)


class FoldedPair(FoldedSentence):
    """A `PairClassifier`, for answers.

    Args:
        model: The model, whose weights must not change any more.
    """

    model: PairClassifier

    def __init__(self, model: PairClassifier):
        super().__init__(model)
        self.comparison = None if model.alignment is None else Comparison(model.alignment, self.words)

    def forward(  # type: ignore[override]  # of two sentences
        self, first: Tensor, first_lengths: Tensor, second: Tensor, second_lengths: Tensor
    ) -> Tensor:
        """Compute the scores of the labels [B, labels]."""
        model, pool = self.model, self.model.config.pool
        first, first_lengths = model.cut(first, first_lengths)
        second, second_lengths = model.cut(second, second_lengths)
        sides = self.both(first, first_lengths, second, second_lengths)
        if self.comparison is None:
            one, two = (trimmed(side, self.words) for side in sides)
        else:
            one, two = self.comparison(*sides)
        if model.reader is not None:
            one, two = (model.reader(each.outputs, each.lengths) for each in (one, two))
        p, h = one.pooled(pool), two.pooled(pool)
        if model.attention is not None:
            p = model.attention(one.outputs, one.lengths, h)
        features = [p, h, p - h, p * h]
        if model.config.counts:
            features.append(shared_words((first, first_lengths), (second, second_lengths), model.rarity))
        scores: Tensor = model.head(torch.cat(features, dim=-1))
        return scores

    def both(
        self, first: Tensor, first_lengths: Tensor, second: Tensor, second_lengths: Tensor
    ) -> tuple[Side, Side]:
        """Both sentences of each pair, read as one batch."""
        longest = max(first.shape[1], second.shape[1])
        ids = torch.cat([F.pad(each, (0, longest - each.shape[1])) for each in (first, second)])
        found: Side = self.words(ids, torch.cat([first_lengths, second_lengths]))
        parts = (each.split([len(first), len(second)]) for each in found)
        one, two = (Side(*each) for each in zip(*parts, strict=True))
        return shortened(one, first.shape[1]), shortened(two, second.shape[1])


class Comparison(nn.Module):
    """An `Alignment`, for answers: from words and outputs side by side to comparisons [B, T, k].

    Args:
        alignment: The module.
        words: What made the words.
    """

    def __init__(self, alignment: Alignment, words: FoldedWords):
        super().__init__()
        with torch.no_grad():
            blocks = alignment.compare.weight.chunk(4, dim=1)  # of a, b, a - b and a * b
            a, b, difference, self.product = (blocked(each, words.size, words.wide) for each in blocks)
            words.alone = torch.cat([a + difference, b - difference])  # [2k, d]
        self.bias, self.size = alignment.compare.bias, alignment.compare.out_features

    def forward(self, first: Side, second: Side) -> tuple[Encoded, Encoded]:
        """The comparisons of both sentences, zero past their ends."""
        p, h, of_p, of_h = first.words, second.words, first.alone, second.alone
        in_p, in_h = real(first.lengths, p.shape[1]), real(second.lengths, h.shape[1])
        scores = torch.bmm(p, h.transpose(1, 2))
        for_p = softmax_over(scores, in_h[:, None])
        for_h = softmax_over(scores.transpose(1, 2), in_p[:, None])
        return (
            unread(self.compared(in_p, p, of_p, for_p, h, of_h), first.lengths),
            unread(self.compared(in_h, h, of_h, for_h, p, of_p), second.lengths),
        )

    def compared(
        self, real: Tensor, a: Tensor, of_a: Tensor, weights: Tensor, others: Tensor, of_others: Tensor
    ) -> Tensor:
        """Words [B, T, d] and their matches among the others', by these weights, as one vector each."""
        features = torch.bmm(weights, others).mul_(a)
        sums = torch.baddbmm(of_a[..., : self.size], weights, of_others[..., self.size :])
        found = F.linear(features[real], self.product, self.bias)
        return of_words(real, found.add_(sums[real]).relu_())


def shortened(side: Side, longest: int) -> Side:
    """Without what lies past a length that no sentence exceeds."""
    return side._replace(words=side.words[:, :longest], alone=side.alone[:, :longest])


def trimmed(side: Side, words: FoldedWords) -> Encoded:
    """The outputs alone, of their true size; the words beside them and what fills them up are left out."""
    outputs, last = (
        torch.cat([part[..., : words.size] for part in each.split(words.wide, dim=-1)], dim=-1)
        for each in (side.words[..., words.wide :], side.last)
    )
    return Encoded(outputs, side.lengths, last)


def of_words(real: Tensor, found: Tensor) -> Tensor:
    """What was found of the words [N, d] in their places [B, T, d], zero past a sentence's end."""
    placed = found.new_zeros(*real.shape, found.shape[1])
    placed[real] = found
    return placed


def rounded_up(k: int) -> int:
    """The next multiple of `LANES`."""
    return -(-k // LANES) * LANES


def widened(matrix: Tensor, inputs: int, wide: int = 0) -> Tensor:
    """A matrix to gates [4k, n] as one to the gates in our order [4K, inputs], filled up with zeros.

    Args:
        matrix: Gates in PyTorch's order: input, forget, cell, output.
        inputs: How many columns to have.
        wide: K, if it is not the number of inputs.
    """
    i, f, g, o = (
        F.pad(gate, (0, inputs - gate.shape[1], 0, (wide or inputs) - len(gate))) for gate in matrix.chunk(4)
    )
    return torch.cat([i, f, o, g])


def blocked(matrix: Tensor, size: int, wide: int) -> Tensor:
    """A matrix [n, blocks of k] as one of blocks of K, filled up with zeros."""
    blocks = matrix.split(size, dim=1)
    return torch.cat([F.pad(each, (0, wide - size)) for each in blocks], dim=1).contiguous()
