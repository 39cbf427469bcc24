"""Texts as tensors of ids, and batches of them.

`Texts` and `Documents` are columns of rows, and `Labelled` is rows. Each has `lengths` [N] to sort by,
`sizes` [N] in words once padded, `select` to take a batch, and `shapes`: how far to pad batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nse.text.vocabulary import Vocabulary

MULTIPLE = 4
"""Bucket shapes are multiples of this: a little padding more, and few shapes."""


class Texts(NamedTuple):
    """Texts of different lengths, padded to the longest."""

    ids: Tensor  # [N, T]
    lengths: Tensor  # [N]

    @classmethod
    def from_words(cls, texts: Sequence[Iterable[str]], vocabulary: Vocabulary, longest: int = 0) -> Texts:
        """Encode texts, each given as its words, cut to `longest` words where that is not 0."""
        encoded = [vocabulary.encode(words) for words in texts]
        lengths = torch.tensor([len(ids) for ids in encoded], dtype=torch.long)
        flat = torch.tensor([each for ids in encoded for each in ids], dtype=torch.long)
        return cls.from_ids(flat, lengths, longest)

    @classmethod
    def from_ids(cls, ids: Tensor, lengths: Tensor, longest: int = 0) -> Texts:
        """Pad texts, given the ids of all, one after the other, and their lengths [N].

        They are cut to `longest` words where that is not 0, so that one long text does not lengthen all.
        """
        lengths = lengths.long()
        kept = lengths.clamp(max=longest) if longest else lengths
        t = torch.arange(int(kept.max()) if len(kept) else 0)
        first = lengths.cumsum(0) - lengths
        real = t < kept[:, None]
        padded = torch.full(real.shape, Vocabulary.PAD)
        padded[real] = ids.long()[(first[:, None] + t)[real]]
        return cls(padded, kept)

    def select(self, index: Tensor, longest: int | None = None) -> Texts:
        """Take some of these texts [B], padded to the longest of them.

        If `longest` is given, they are padded or cut to that, and no GPU is waited for to know their lengths.
        """
        lengths = self.lengths[index]
        if longest is None:
            longest = int(lengths.max()) if len(lengths) else 0
        ids = self.ids[index, :longest]
        if ids.shape[1] < longest:
            ids = F.pad(ids, (0, longest - ids.shape[1]), value=Vocabulary.PAD)
        return Texts(ids, lengths.clamp(max=longest))

    def compute_shapes(self, batches: Sequence[Tensor], multiple: int = MULTIPLE) -> list[int]:
        """Round the longest text of each batch up to a multiple, where the ids go so far; none is empty."""
        longest = -(-_max_per_batch(self.lengths, batches) // multiple) * multiple
        return [int(n) for n in np.minimum(longest, self.ids.shape[1])]

    def to(self, device: torch.device) -> Texts:
        """Return the same texts on a device."""
        return Texts(self.ids.to(device), self.lengths.to(device))

    @property
    def sizes(self) -> Tensor:
        """[N], in words."""
        return self.lengths


class Documents(NamedTuple):
    """Texts made of sentences: the sentences of all of them, one after the other, and which are whose."""

    sentences: Texts
    counts: Tensor  # [N], how many sentences a document has
    first: Tensor  # [N], where its sentences begin
    words: Tensor  # [N], how many words its longest sentence has

    @classmethod
    def from_sentences(cls, sentences: Texts, counts: Tensor) -> Documents:
        """Divide the sentences of all documents by how many each has [N]."""
        counts = counts.long()
        owner = torch.arange(len(counts)).repeat_interleave(counts)
        words = torch.zeros_like(counts).scatter_reduce(0, owner, sentences.lengths, "amax")
        if not len(sentences.lengths):  # `select` needs one to fill rows up with
            sentences = Texts(counts.new_zeros(1, 1), counts.new_zeros(1))
        return cls(sentences, counts, counts.cumsum(0) - counts, words)

    @property
    def lengths(self) -> Tensor:
        """[N], the number of sentences, and where that is equal the longest of them."""
        return self.counts * (self.sentences.ids.shape[1] + 1) + self.words

    @property
    def sizes(self) -> Tensor:
        """[N], words once sentences are padded to the longest of all: a batch may hold that one."""
        return self.counts * self.sentences.ids.shape[1]

    def select(self, index: Tensor, shape: tuple[int, int, int] | None = None) -> DocumentBatch:
        """Take some of these documents [B], their sentences as one batch of sequences, padded as they need.

        If a shape is given, as `shapes` gives it, they are padded to that, and no GPU is waited for.
        """
        counts = self.counts[index]
        S, D, T = shape or self.compute_shape(index)
        ends = counts.cumsum(0)
        begins = ends - counts
        row = torch.arange(S, device=index.device)
        owner = torch.searchsorted(ends, row, right=True).clamp(max=max(0, len(index) - 1))
        real = row < counts.sum()
        texts = self.sentences.select(torch.where(real, (self.first[index] - begins)[owner] + row, 0), T)
        place = torch.arange(D, device=index.device)
        rows = torch.where(place < counts[:, None], begins[:, None] + place, 0)
        # A row that belongs to no document has no words.
        return DocumentBatch(texts.ids, texts.lengths * real, rows, counts)

    def compute_shape(self, index: Tensor) -> tuple[int, int, int]:
        """Count sentences of these documents in all, those of the longest, and words of a sentence."""
        counts, words = self.counts[index], self.words[index]
        return max(1, int(counts.sum())), max(1, int(counts.max())), max(1, int(words.max()))

    def compute_shapes(
        self, batches: Sequence[Tensor], multiple: int = MULTIPLE
    ) -> list[tuple[int, int, int]]:
        """Round what each batch needs up, so that shapes are few; no batch is empty."""
        longest = max(1, self.sentences.ids.shape[1])
        sums = (int(self.counts[batch].sum()) for batch in batches)
        most, words = (_max_per_batch(numbers, batches).tolist() for numbers in (self.counts, self.words))
        return [
            (round_up(s, 2), round_up(m, 3), min(longest, max(multiple, round_up(w, 1))))
            for s, m, w in zip(sums, most, words, strict=True)
        ]

    def to(self, device: torch.device) -> Documents:
        """Return the same documents on a device."""
        return Documents(self.sentences.to(device), *(each.to(device) for each in self[1:]))


class DocumentBatch(NamedTuple):
    """Some documents: the tensors that a model is called with."""

    ids: Tensor  # [S, T], of all their sentences
    lengths: Tensor  # [S], how many words they have; 0 in rows that fill the batch up
    rows: Tensor  # [B, D], which of the sentences are a document's, in their order; 0 past its end
    counts: Tensor  # [B], how many sentences a document has

    def to(self, device: torch.device) -> DocumentBatch:
        """Return the same batch on a device."""
        return DocumentBatch(*(each.to(device) for each in self))


def round_up(n: int, bits: int) -> int:
    """Find the next number of so many bits and then zeros: with two 1, 2, 3, 4, 6, 8, 12, 16, 24 ..."""
    unit = 1 << max(0, max(1, n).bit_length() - bits)
    return -(-max(1, n) // unit) * unit


Shape = tuple[Any, ...]
"""How far each column of a batch is padded."""


class LabelledRows(NamedTuple):
    """Rows of one text or more, each with a label."""

    texts: tuple[Any, ...]  # the columns as a model takes them, each `Texts` or `Documents`
    labels: Tensor  # [N]
    groups: Tensor | None = None  # [N], which question a row answers; `None` where each row stands alone

    @property
    def inputs(self) -> list[Tensor]:
        """What a model is called with: the tensors of each column, such as ids and lengths."""
        return [tensor for texts in self.texts for tensor in texts]

    @property
    def lengths(self) -> Tensor:
        """[N], of the longest text of each row: what batches are sorted by."""
        return torch.stack([texts.lengths for texts in self.texts]).amax(dim=0)

    @property
    def sizes(self) -> Tensor:
        """[N], how many words the longest text of each row has; of a document, once it is padded."""
        return torch.stack([texts.sizes for texts in self.texts]).amax(dim=0)

    def select(self, index: Tensor, shape: Shape | None = None) -> LabelledRows:
        """Take these rows [B] as a batch, padded as a shape says, or to the longest text of each column."""
        far: Sequence[Any] = [None] * len(self.texts) if shape is None else shape
        texts = tuple(each.select(index, longest) for each, longest in zip(self.texts, far, strict=True))
        return LabelledRows(texts, self.labels[index], None if self.groups is None else self.groups[index])

    def compute_shapes(self, batches: Sequence[Tensor], multiple: int = MULTIPLE) -> list[Shape]:
        """Tell how far to pad each column of many batches, none of them empty, so that shapes are few.

        It looks at the lengths: ask rows that lie on the host, and no device is waited for.
        """
        return list(zip(*(texts.compute_shapes(batches, multiple) for texts in self.texts), strict=True))

    def to(self, device: torch.device) -> LabelledRows:
        """Return the same rows on a device."""
        groups = None if self.groups is None else self.groups.to(device)
        return LabelledRows(tuple(texts.to(device) for texts in self.texts), self.labels.to(device), groups)


def _max_per_batch(numbers: Tensor, batches: Sequence[Tensor]) -> NDArray[np.int64]:
    """Find the largest of the numbers [N] in each of many batches, none of them empty."""
    sizes = np.array([len(batch) for batch in batches])
    order, starts = torch.cat(list(batches)).numpy(), sizes.cumsum() - sizes
    return np.asarray(np.maximum.reduceat(numbers.numpy()[order], starts))
