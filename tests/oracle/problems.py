"""Random arguments for the recurrence, its results by the equations, and comparisons of results."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from nse.ops.types import LSTMLayer, Memory, Result, Weights
from oracle import equations


@dataclass
class Problem:
    """Arguments of a backend."""

    x: torch.Tensor
    lengths: torch.Tensor | None
    memories: tuple
    read: tuple
    write: tuple
    weights: Weights
    c_mask: torch.Tensor | None = None

    def run(self, backend, keys=True) -> Result:
        return backend(
            self.x, self.lengths, self.memories, self.read, self.write, self.weights, self.c_mask, keys
        )

    def leaves(self):
        return [
            t for t in list_tensors([getattr(self, f) for f in self.__dataclass_fields__]) if t.requires_grad
        ]

    def gradients(self, backend, seed=0):
        """Compute the gradients of every input and weight, for a random weighting of all results."""
        return self.outputs_and_gradients(backend, seed)[1]

    def outputs_and_gradients(self, backend, seed=0):
        """Compute the results and their `gradients` in one call."""
        result = self.run(backend)
        outputs = list_tensors(result)
        generator = torch.Generator().manual_seed(seed)
        loss = sum(
            (
                out.double() * torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.device)
            ).sum()
            for out in outputs
        )
        leaves = self.leaves()
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        pairs = zip(gradients, leaves, strict=True)
        return result, [torch.zeros_like(x) if g is None else g for g, x in pairs]

    def to(self, device=None, dtype=None):
        """Copy the problem to another device or dtype."""
        return Problem(**{f: move(getattr(self, f), device, dtype) for f in self.__dataclass_fields__})

    def select(self, *rows):
        """Return the problem for these sequences of the batch."""
        index = torch.tensor(rows)
        return replace(
            self,
            x=self.x[index],
            lengths=None if self.lengths is None else self.lengths[index],
            memories=tuple(
                Memory(m.slots[index], None if m.lengths is None else m.lengths[index]) for m in self.memories
            ),
            read=tuple(s[:, index] for s in self.read),
            write=tuple(s[:, index] for s in self.write),
            c_mask=None if self.c_mask is None else self.c_mask[index],
        )


def list_tensors(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [t for part in tree for t in list_tensors(part)] if isinstance(tree, tuple | list) else []


def move(tree, device, dtype):
    if isinstance(tree, torch.Tensor):
        if not tree.is_floating_point():
            return tree.to(device)
        return tree.detach().to(device=device, dtype=dtype or tree.dtype).requires_grad_(tree.requires_grad)
    if isinstance(tree, tuple):
        parts = [move(part, device, dtype) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree


def make_problem(
    B=3,
    T=5,
    k=4,
    shared=(),
    layers=1,
    slots=None,
    lengths="random",
    dropout=0.0,
    seed=0,
    dtype=torch.float64,
    scale=0.5,
):
    """Make a random problem.

    Args:
        B: Number of sequences.
        T: Number of steps.
        k: Size.
        shared: Number of slots of each shared memory.
        layers: Number of layers of both LSTMs.
        slots: Number of slots of the own memory; `None` for the words themselves.
        lengths: "random", `None`, or a list of numbers of steps.
        dropout: Dropout rate on c.
        seed: Seed of all random numbers.
        dtype: Type of every tensor.
        scale: Largest weight; beyond about 2 / sqrt(k) the recurrence is chaotic.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape, scale=scale):
        drawn = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return ((2 * drawn - 1) * scale).to(dtype).requires_grad_()

    def draw_lengths(maximum):
        if lengths is None:
            return None
        drawn = torch.randint(0, maximum + 1, (B,), generator=generator)
        if B:
            drawn[torch.randint(0, B, (1,), generator=generator)] = maximum
        return drawn

    def stack(size):
        return tuple(
            LSTMLayer(uniform(4 * k, k if layer else size), uniform(4 * k, k), uniform(4 * k), uniform(4 * k))
            for layer in range(layers)
        )

    d = (2 + len(shared)) * k
    x = uniform(B, T, k, scale=2.0)
    steps = draw_lengths(T) if lengths in ("random", None) else torch.tensor(lengths)
    own = Memory(x, steps) if slots is None else Memory(uniform(B, slots, k, scale=2.0), draw_lengths(slots))
    others = tuple(Memory(uniform(B, L, k, scale=2.0), draw_lengths(L)) for L in shared)
    mask = None
    if dropout:
        keep = torch.rand(B, T, d, generator=generator, dtype=torch.float64) >= dropout
        mask = keep.to(dtype) / (1 - dropout)
    states = [uniform(layers, B, k, scale=0.5) for _ in range(4)]
    weights = Weights(stack(k), uniform(d, d), uniform(d), stack(d))
    return Problem(x, steps, (own, *others), tuple(states[:2]), tuple(states[2:]), weights, mask)


def solve_by_equations(p: Problem) -> Result:
    """Solve a problem by `equations`, one sequence after the other, and pad the results."""

    def array(tensor):
        return tensor.detach().cpu().double().numpy()

    def to_arrays(stack):
        return [[array(w) for w in layer] for layer in stack]

    B, T, _k = p.x.shape
    result = Result(*make_zeros(p))
    for b in range(B):
        steps = T if p.lengths is None else int(p.lengths[b])
        sizes = [m.slots.shape[1] if m.lengths is None else int(m.lengths[b]) for m in p.memories]
        memories = [list(array(m.slots)[b][:size]) for m, size in zip(p.memories, sizes, strict=True)]
        states = [
            [(array(h)[b], array(c)[b]) for h, c in zip(*pair, strict=True)] for pair in (p.read, p.write)
        ]
        outputs, memories, read, write, keys = equations.encode(
            list(array(p.x)[b][:steps]),
            memories,
            *states,
            to_arrays(p.weights.read),
            array(p.weights.compose),
            array(p.weights.compose_bias),
            to_arrays(p.weights.write),
            None if p.c_mask is None else array(p.c_mask)[b],
        )
        for t in range(steps):
            result.outputs[b, t] = torch.from_numpy(outputs[t])
            for j, size in enumerate(sizes):
                result.keys[j][b, t, :size] = torch.from_numpy(keys[t][j])
        for j, size in enumerate(sizes):
            if size:
                result.memories[j][b, :size] = torch.from_numpy(np.stack(memories[j]))
        for name, state in (("read", read), ("write", write)):
            for layer, (h, c) in enumerate(state):
                getattr(result, name)[0][layer, b] = torch.from_numpy(h)
                getattr(result, name)[1][layer, b] = torch.from_numpy(c)
    return result


def make_zeros(p: Problem):
    B, T, k = p.x.shape
    like = {"dtype": torch.float64}
    yield torch.zeros(B, T, k, **like)
    yield tuple(torch.zeros(m.slots.shape, **like) for m in p.memories)
    yield tuple(torch.zeros(s.shape, **like) for s in p.read)
    yield tuple(torch.zeros(s.shape, **like) for s in p.write)
    yield tuple(torch.zeros(B, T, m.slots.shape[1], **like) for m in p.memories)


def assert_close(got, expected, tolerance):
    """Compare all tensors of two results element by element."""
    got, expected = list_tensors(got), list_tensors(expected)
    assert len(got) == len(expected)
    for index, (a, b) in enumerate(zip(got, expected, strict=True)):
        torch.testing.assert_close(
            a.detach().cpu().double(),
            b.detach().cpu().double(),
            rtol=tolerance,
            atol=tolerance,
            msg=lambda m, index=index: f"tensor {index}: {m}",
        )


def assert_near(got, expected, tolerance):
    """Compare all tensors of two results by the norm of the difference, relative to the norm or a minimum."""
    got, expected = list_tensors(got), list_tensors(expected)
    assert len(got) == len(expected)
    for index, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.shape == b.shape, f"tensor {index}"
        a, b = (t.detach().cpu().double() for t in (a, b))
        norm = max(b.norm().item(), 0.05 * b.numel() ** 0.5)
        assert (a - b).norm().item() <= tolerance * norm, (
            f"tensor {index} is off by {(a - b).norm() / norm:.1e}"
        )


EXTRAS = {
    "nse": {},
    "no lengths": {"lengths": None},
    "1 shared": {"shared": (7,)},
    "2 shared": {"shared": (1, 33)},
    "3 shared, 2 layers": {"shared": (2, 1, 5), "layers": 2},
    "2 layers": {"layers": 2},
    "dropout": {"dropout": 0.3},
    "dropout, 2 layers, shared, no lengths": {"dropout": 0.5, "layers": 2, "shared": (3,), "lengths": None},
    "own start": {"slots": 11},
    "empty start": {"slots": 0, "lengths": None},
}
"""Arguments of `make_problem` that every backend is tested with, by name."""
