"""Packing removes the padding; sequences that are still running come first in each step."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from nse.ops.packing import Packing

CPU = torch.device("cpu")


def test_the_example_of_the_docstring_is_true():
    pack = Packing(3, 3, torch.tensor([3, 1, 2]), CPU)
    words = torch.tensor([[11, 12, 13], [21, 0, 0], [31, 32, 0]])
    assert pack.pack(words).tolist() == [11, 31, 21, 12, 32, 13]
    assert pack.counts == [3, 2, 1]
    assert pack.take_last(pack.pack(words), torch.zeros(3)).tolist() == [13, 32, 21]
    assert pack.shift(pack.pack(words), torch.tensor([1, 3, 2])).tolist() == [1, 3, 2, 11, 31, 12]


@given(st.data(), st.integers(0, 6), st.integers(0, 6))
def test_unpack_undoes_pack(data, batch, size):
    lengths = data.draw(st.none() | st.lists(st.integers(0, size), min_size=batch, max_size=batch))
    pack = Packing(batch, size, None if lengths is None else torch.tensor(lengths, dtype=torch.long), CPU)
    true = [size] * batch if lengths is None else lengths
    words = torch.arange(1, batch * size + 1).view(batch, size)
    rows = pack.pack(words)
    assert len(rows) == pack.total == sum(true)
    back = pack.unpack(rows)
    for b, length in enumerate(true):
        assert back[b, :length].tolist() == words[b, :length].tolist()
        assert not back[b, length:].any()
    start = -torch.arange(1, batch + 1)
    ends = pack.unsort(pack.take_last(rows, pack.sort(start))) if rows.numel() else start
    assert ends.tolist() == [words[b, n - 1].item() if n else -(b + 1) for b, n in enumerate(true)]
    assert pack.unsort(pack.sort(start)).tolist() == start.tolist()
