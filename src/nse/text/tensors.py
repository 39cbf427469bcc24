"""Texts as tensors of ids, padded, and batches of them.

`Texts` and `Documents` are columns, `LabelledRows` rows of such columns. Each has `lengths` [N] to sort by,
`sizes` [N] in words once padded, `select` to take a batch, and `compute_shapes`, which says how far to pad.
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
"""Padded lengths are multiples of this: a little more padding, but few different shapes."""

DocumentShape = tuple[int, int, int]  # sentences of a batch, sentences of a document, words of a sentence


class Texts(NamedTuple):
    """Texts of different lengths, padded to the longest."""

    ids: Tensor  # [N, T]
    lengths: Tensor  # [N]

    @classmethod
    def from_words(cls, texts: Sequence[Iterable[str]], vocabulary: Vocabulary, max_words: int = 0) -> Texts:
        """Encode tokenized texts, each truncated to `max_words` (0: no limit)."""
        encoded = [vocabulary.encode(words) for words in texts]
        lengths = torch.tensor([len(ids) for ids in encoded], dtype=torch.long)
        flat = torch.tensor([i for ids in encoded for i in ids], dtype=torch.long)
        return cls.from_ids(flat, lengths, max_words)

    @classmethod
    def from_ids(cls, ids: Tensor, lengths: Tensor, max_words: int = 0) -> Texts:
        """Pad texts, given the concatenated ids of all and their lengths [N]; truncate as `from_words`."""
        lengths = lengths.long()
        kept = lengths.clamp(max=max_words) if max_words else lengths
        t = torch.arange(int(kept.max()) if len(kept) else 0)
        first = lengths.cumsum(0) - lengths
        mask = t < kept[:, None]
        padded = torch.full(mask.shape, Vocabulary.PAD)
        padded[mask] = ids.long()[(first[:, None] + t)[mask]]
        return cls(padded, kept)

    def select(self, index: Tensor, length: int | None = None) -> Texts:
        """Select texts [B], padded to the longest of them.

        With `length`, they are padded or truncated to it, and a GPU need not be synchronized to know lengths.
        """
        lengths = self.lengths[index]
        if length is None:
            length = int(lengths.max()) if len(lengths) else 0
        ids = self.ids[index, :length]
        if ids.shape[1] < length:
            ids = F.pad(ids, (0, length - ids.shape[1]), value=Vocabulary.PAD)
        return Texts(ids, lengths.clamp(max=length))

    def compute_shapes(self, batches: Sequence[Tensor], multiple: int = MULTIPLE) -> list[int]:
        """Round the length of each batch up to a multiple, at most T; no batch is empty."""
        longest = -(-_max_per_batch(self.lengths, batches) // multiple) * multiple
        return [int(n) for n in np.minimum(longest, self.ids.shape[1])]

    def to(self, device: torch.device) -> Texts:
        """Return the same texts on a device."""
        return Texts(self.ids.to(device), self.lengths.to(device))

    @property
    def sizes(self) -> Tensor:
        """Number of words [N]."""
        return self.lengths


class Documents(NamedTuple):
    """Texts made of sentences: the sentences of all documents, concatenated, and which are whose."""

    sentences: Texts
    counts: Tensor  # [N], number of sentences of a document
    starts: Tensor  # [N], index of its first sentence
    longest: Tensor  # [N], number of words of its longest sentence

    @classmethod
    def from_sentences(cls, sentences: Texts, counts: Tensor) -> Documents:
        """Group the sentences of all documents by the number that each has [N]."""
        counts = counts.long()
        owner = torch.arange(len(counts)).repeat_interleave(counts)
        longest = torch.zeros_like(counts).scatter_reduce(0, owner, sentences.lengths, "amax")
        if not len(sentences.lengths):  # `select` fills rows up with the first sentence
            sentences = Texts(counts.new_zeros(1, 1), counts.new_zeros(1))
        return cls(sentences, counts, counts.cumsum(0) - counts, longest)

    @property
    def lengths(self) -> Tensor:
        """Key to sort by [N]: the number of sentences, then the length of the longest."""
        return self.counts * (self.sentences.ids.shape[1] + 1) + self.longest

    @property
    def sizes(self) -> Tensor:
        """Number of words [N] once padded to the longest sentence of all: a batch may hold that one."""
        return self.counts * self.sentences.ids.shape[1]

    def select(self, index: Tensor, shape: DocumentShape | None = None) -> DocumentBatch:
        """Select documents [B], their sentences as one batch of sequences, padded as they need.

        With a shape of `compute_shapes`, they are padded to it, and a GPU need not be synchronized.
        """
        counts = self.counts[index]
        S, D, T = shape or self.compute_shape(index)
        ends = counts.cumsum(0)
        begins = ends - counts
        row = torch.arange(S, device=index.device)
        owner = torch.searchsorted(ends, row, right=True).clamp(max=max(0, len(index) - 1))
        mask = row < counts.sum()
        texts = self.sentences.select(torch.where(mask, (self.starts[index] - begins)[owner] + row, 0), T)
        position = torch.arange(D, device=index.device)
        rows = torch.where(position < counts[:, None], begins[:, None] + position, 0)
        # A row that belongs to no document has no words.
        return DocumentBatch(texts.ids, texts.lengths * mask, rows, counts)

    def compute_shape(self, index: Tensor) -> DocumentShape:
        """Compute the smallest shape of a batch of these documents."""
        counts, longest = self.counts[index], self.longest[index]
        return max(1, int(counts.sum())), max(1, int(counts.max())), max(1, int(longest.max()))

    def compute_shapes(self, batches: Sequence[Tensor], multiple: int = MULTIPLE) -> list[DocumentShape]:
        """Round the shape of each batch up, so that there are few; no batch is empty."""
        limit = max(1, self.sentences.ids.shape[1])
        totals = (int(self.counts[batch].sum()) for batch in batches)
        most, longest = (_max_per_batch(n, batches).tolist() for n in (self.counts, self.longest))
        words = (min(limit, max(multiple, round_up(t, 1))) for t in longest)
        return [(round_up(s, 2), round_up(d, 3), t) for s, d, t in zip(totals, most, words, strict=True)]

    def to(self, device: torch.device) -> Documents:
        """Return the same documents on a device."""
        return Documents(self.sentences.to(device), *(tensor.to(device) for tensor in self[1:]))


class DocumentBatch(NamedTuple):
    """Batch of documents: the tensors that a model is called with."""

    ids: Tensor  # [S, T], of all sentences
    lengths: Tensor  # [S], number of words; 0 in rows that fill the batch up
    rows: Tensor  # [B, D], indices of the sentences of a document, in order; 0 past its end
    counts: Tensor  # [B], number of sentences of a document

    def to(self, device: torch.device) -> DocumentBatch:
        """Return the same batch on a device."""
        return DocumentBatch(*(tensor.to(device) for tensor in self))


def round_up(n: int, bits: int) -> int:
    """Round up to `bits` significant binary digits: with two 1, 2, 3, 4, 6, 8, 12, 16, 24 ..."""
    unit = 1 << max(0, max(1, n).bit_length() - bits)
    return -(-max(1, n) // unit) * unit


Shape = tuple[Any, ...]
"""Padded size of each column of a batch."""


class LabelledRows(NamedTuple):
    """Rows of one or more texts, each row with a label."""

    texts: tuple[Any, ...]  # a column for each input of a model, `Texts` or `Documents`
    labels: Tensor  # [N]
    groups: Tensor | None = None  # [N], the question that a row answers; None where rows are independent

    @property
    def inputs(self) -> list[Tensor]:
        """Arguments of a model: the tensors of each column, such as ids and lengths."""
        return [tensor for texts in self.texts for tensor in texts]

    @property
    def lengths(self) -> Tensor:
        """Length [N] of the longest text of each row, which batches are sorted by."""
        return torch.stack([texts.lengths for texts in self.texts]).amax(dim=0)

    @property
    def sizes(self) -> Tensor:
        """Number of words [N] of the longest text of each row; of a document, once it is padded."""
        return torch.stack([texts.sizes for texts in self.texts]).amax(dim=0)

    def select(self, index: Tensor, shape: Shape | None = None) -> LabelledRows:
        """Select rows [B] as a batch, padded to a shape, or to the longest text of each column."""
        sizes: Sequence[Any] = [None] * len(self.texts) if shape is None else shape
        texts = tuple(column.select(index, size) for column, size in zip(self.texts, sizes, strict=True))
        return LabelledRows(texts, self.labels[index], None if self.groups is None else self.groups[index])

    def compute_shapes(self, batches: Sequence[Tensor], multiple: int = MULTIPLE) -> list[Shape]:
        """Compute how far to pad each column of each batch, so that shapes are few; no batch is empty.

        It reads the lengths: call it on rows in host memory, so that no device is synchronized.
        """
        return list(zip(*(texts.compute_shapes(batches, multiple) for texts in self.texts), strict=True))

    def to(self, device: torch.device) -> LabelledRows:
        """Return the same rows on a device."""
        groups = None if self.groups is None else self.groups.to(device)
        return LabelledRows(tuple(texts.to(device) for texts in self.texts), self.labels.to(device), groups)


def _max_per_batch(numbers: Tensor, batches: Sequence[Tensor]) -> NDArray[np.int64]:
    """Return the largest of the numbers [N] in each batch; none is empty."""
    sizes = np.array([len(batch) for batch in batches])
    order, starts = torch.cat(list(batches)).numpy(), sizes.cumsum() - sizes
    return np.asarray(np.maximum.reduceat(numbers.numpy()[order], starts))
