"""`NSE`, the encoder: reads a sequence word by word while it rewrites a memory of the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from nse.nn import arguments as checks
from nse.nn import init as initial
from nse.ops.dispatch import choose, recurrence
from nse.ops.types import LSTMLayer, LSTMState, Memory, Weights


class State(NamedTuple):
    """Where an encoder stands, to carry on from.

    Attributes:
        read: Hidden and cell state of the read LSTM, each [layers, B, k].
        write: Likewise of the write LSTM.
        memory: The own memory. `NSE.step` goes on with it; a call of the encoder starts from its own
            `memory` argument instead.
        shared: The shared memories, likewise.
    """

    read: LSTMState
    write: LSTMState
    memory: Memory | None = None
    shared: tuple[Memory, ...] = ()


class Encoding(NamedTuple):
    """What an encoder returns.

    Attributes:
        outputs: [B, T, k], h_t, zero past a sequence's end.
        last: [B, k], h at each sequence's true last step; where there was no step at all, the h it
            started with.
        memory: The own memory after the last step.
        state: The read and write LSTM states, to carry on, with the memories beside them.
        shared: The shared memories as this encoder left them.
        keys: z [B, T, L], which slots each step read and wrote; `None` without `trace`.
        shared_keys: Likewise for each shared memory.
    """

    outputs: Tensor
    last: Tensor
    memory: Memory
    state: State
    shared: tuple[Memory, ...] = ()
    keys: Tensor | None = None
    shared_keys: tuple[Tensor, ...] = ()


class NSE(nn.Module):
    """Neural Semantic Encoder; with `shared` memories, MMA-NSE.

    At each step it reads (an LSTM over the words gives o_t, which attends over the memory), composes (an
    affine map of o_t and what was read) and writes (a second LSTM's output h_t replaces the slots in
    proportion to how much they were read). A sequence's result does not depend on its batch, its padding
    or the backend.

        encoder = NSE(300)
        out = encoder(x, lengths)  # x [B, T, 300]
        out.outputs, out.last, out.memory

    Args:
        size: k, of words, slots and outputs.
        shared: How many memories of other encoders are read and written as well.
        layers: Layers of the read and of the write LSTM.
        dropout: On x_t before the read LSTM and on c_t before the write LSTM, a fresh mask each step.
            Never on the memory.
        backend: "auto", "triton", "lean" or "reference". "auto" follows the environment variable
            NSE_BACKEND, or else is "triton" on a CUDA device that it supports, "lean" elsewhere.
        padding: "masked" respects lengths. "paper" is the original's behaviour: pads are words, which are
            read, attended to and written, whatever `lengths` says; put them on the left.
        blanks: Learned slots in front of the words' own, the same for every sequence: scratch space to write
            to, as the pads are in the original. Not where `memory` or `state` is given.
        starts: Learned words in front of every sequence, each a step and a slot after the blank ones: time to
            look around before the first word. Their outputs are not returned, nor are their keys unless
            `trace="all"`. Likewise.
        init: "uniform", as in the paper, or "lookup": reading starts as looking each word up in the memory,
            and words, outputs and slots start in one space (`nse.nn.init`).
        init_range: Weights and biases start uniform in (-init_range, init_range), before any lookup.
        check_finite: Refuse x and memories that hold NaN or infinities, at the cost of looking.
        device: Where the parameters live.
        dtype: Their type.

    Attributes:
        blank: [blanks, k], the blank slots; `None` without any.
        start: [starts, k], the start words; `None` without any.
        read: `nn.LSTM`, k to k.
        compose: `nn.Linear` over [o ; m_own ; m_shared...].
        write: `nn.LSTM`, (2 + shared) k to k.
    """

    def __init__(
        self,
        size: int,
        *,
        shared: int = 0,
        layers: int = 1,
        dropout: float = 0.0,
        backend: str = "auto",
        padding: Literal["masked", "paper"] = "masked",
        blanks: int = 0,
        starts: int = 0,
        init: Literal["uniform", "lookup"] = "uniform",
        init_range: float = 0.1,
        check_finite: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        checks.counts(
            size=(size, 1), shared=(shared, 0), layers=(layers, 1), blanks=(blanks, 0), starts=(starts, 0)
        )
        checks.choices(dropout, padding, init, init_range)
        choose(backend)  # a name that does not exist is told here, not at the first batch
        super().__init__()
        self.size, self.shared, self.layers, self.dropout = size, shared, layers, dropout
        self.backend, self.padding = backend, padding
        self.init, self.init_range, self.check_finite = init, init_range, check_finite
        composition = (2 + shared) * size
        self.read = nn.LSTM(size, size, layers, batch_first=True, device=device, dtype=dtype)
        self.compose = nn.Linear(composition, composition, device=device, dtype=dtype)
        self.write = nn.LSTM(composition, size, layers, batch_first=True, device=device, dtype=dtype)
        self.blank = nn.Parameter(torch.empty(blanks, size, device=device, dtype=dtype)) if blanks else None
        self.start = nn.Parameter(torch.empty(starts, size, device=device, dtype=dtype)) if starts else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every weight and bias anew, as `init` and `init_range` say."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -self.init_range, self.init_range)
        if self.init == "lookup":
            initial.lookup(self.read, self.compose, self.write)

    def forward(
        self,
        x: Tensor | PackedSequence,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        memory: Memory | Tensor | None = None,
        shared: Sequence[Memory | Tensor] = (),
        state: State | None = None,
        trace: bool | Literal["all"] = False,
    ) -> Encoding:
        """Encode a batch of sequences.

        Args:
            x: [B, T, k], or a `PackedSequence` (its own lengths count; outputs come back padded, in the
                order of the original batch).
            lengths: [B], the true length of each sequence, 0 to T; `None` means T.
            memory: Start from this memory, of any length, instead of from x.
            shared: The memories of other encoders, as many as the encoder was built for.
            state: Carry on from here; `None` means zeros. Only the LSTM states: pass `memory=` (and
                `shared=`) too where the memory shall go on as well.
            trace: Return the keys, what each step read and wrote; with "all" those of the start words too.
        """
        if isinstance(x, PackedSequence):
            if lengths is not None:
                raise checks.refuse("lengths", "None, since a PackedSequence has its own", lengths)
            x, lengths = pad_packed_sequence(x, batch_first=True)
        like = self.compose.weight
        checks.floats("x", x, ("B", "T", self.size), like)
        B, T, _ = x.shape
        steps = checks.lengths("lengths", lengths, B, T, x.device)
        if isinstance(shared, Memory | Tensor) or len(shared) != self.shared:
            wanted = f"a list of {self.shared} memories, as the encoder was built with shared={self.shared}"
            raise checks.refuse("shared", wanted, shared)
        if (fresh := memory is None and state is None) and self.start is not None:
            x = torch.cat([self.start.to(x.dtype).expand(B, -1, -1), x], dim=1)
            steps = None if steps is None else steps + len(self.start)
        if memory is None:
            memory = Memory(x, steps)
            if fresh and self.blank is not None:
                memory = memory.prepend(self.blank.to(x.dtype))
        given = {"memory": memory}
        given |= {f"shared[{j}]": each for j, each in enumerate(shared)}
        memories = {name: checks.memory(name, each, B, self.size, like) for name, each in given.items()}
        if self.padding == "paper":
            steps, memories = None, {name: Memory(each.slots) for name, each in memories.items()}
        if self.check_finite:
            for name, each in {"x": Memory(x, steps), **memories}.items():
                checks.finite(name, *each)
        encoding = self._run(x, steps, tuple(memories.values()), state, bool(trace))
        return self._without_starts(encoding, keep_keys=trace == "all") if fresh else encoding

    def step(
        self,
        x_t: Tensor,
        state: State | None = None,
        *,
        memory: Memory | Tensor | None = None,
        shared: Sequence[Memory | Tensor] | None = None,
        trace: bool = False,
    ) -> Encoding:
        """Take one step, for decoders: the same numbers as the whole sequence at once.

            state = encoder.step(x_1, memory=source.memory).state
            state = encoder.step(x_2, state).state

        Args:
            x_t: [B, k].
            state: Where to go on, its memories included; `None` means zeros, and then `memory` is needed.
            memory: Use this memory instead of the state's.
            shared: Use these memories instead of the state's.
            trace: Return the keys.

        Returns:
            As for a sequence of one step: `last` is h_t, `state` is for the next step.
        """
        checks.floats("x_t", x_t, ("B", self.size), self.compose.weight)
        if state is not None and not isinstance(state, State):
            raise checks.refuse("state", "an nse.State, such as the state of an earlier step", state)
        if state is not None:
            memory = state.memory if memory is None else memory
            shared = state.shared if shared is None else shared
        shared = () if shared is None else shared
        if memory is None:
            raise checks.refuse("memory", "a memory to start from, here or in the state", None)
        encoding: Encoding = self(x_t[:, None], memory=memory, shared=shared, state=state, trace=trace)
        return encoding

    def extra_repr(self) -> str:
        """Print the settings."""
        return (
            f"{self.size}, shared={self.shared}, layers={self.layers}, dropout={self.dropout}, "
            f"backend={self.backend!r}, padding={self.padding!r}"
            + ("" if self.blank is None else f", blanks={len(self.blank)}")
            + ("" if self.start is None else f", starts={len(self.start)}")
        )

    def weights(self) -> Weights:
        """Give the parameters as `nse.ops` takes them."""
        read, write = (
            tuple(LSTMLayer(*layer) for layer in lstm.all_weights) for lstm in (self.read, self.write)
        )
        return Weights(read, self.compose.weight, self.compose.bias, write)

    def _without_starts(self, encoding: Encoding, keep_keys: bool) -> Encoding:
        """Leave outputs of the words alone, and their keys unless all are kept."""
        if self.start is None:
            return encoding
        n, keys = len(self.start), encoding.keys
        encoding = encoding._replace(outputs=encoding.outputs[:, n:])
        if keep_keys or keys is None:
            return encoding
        return encoding._replace(keys=keys[:, n:], shared_keys=tuple(z[:, n:] for z in encoding.shared_keys))

    def _states(self, state: State | None, x: Tensor) -> tuple[LSTMState | None, LSTMState | None]:
        if state is None:
            return None, None  # zeros
        if not isinstance(state, State):
            raise checks.refuse("state", "an nse.State, such as the state of an earlier call", state)
        shape, like = (self.layers, len(x), self.size), self.compose.weight
        read = checks.lstm_state("state.read", state.read, shape, like)
        return read, checks.lstm_state("state.write", state.write, shape, like)

    def _run(
        self, x: Tensor, steps: Tensor | None, memories: tuple[Memory, ...], state: State | None, trace: bool
    ) -> Encoding:
        exact = self.compose.weight.dtype  # under autocast, words may come in another type
        x = x.to(exact)
        memories = tuple(Memory(m.slots.to(exact), m.lengths) for m in memories)
        states = self._states(state, x)
        read, write = (None if s is None else (s[0].to(exact), s[1].to(exact)) for s in states)
        c_mask = None
        if self.training and self.dropout:
            x = F.dropout(x, self.dropout)
            c_mask = F.dropout(x.new_ones(*x.shape[:2], self.compose.in_features), self.dropout)
        result = recurrence(
            x, steps, memories, read, write, self.weights(), c_mask=c_mask, keys=trace, backend=self.backend
        )
        own, *others = (
            Memory(slots, full_lengths(slots) if before.lengths is None else before.lengths)
            for slots, before in zip(result.memories, memories, strict=True)
        )
        h_end = result.write[0]
        return Encoding(
            outputs=result.outputs,
            # Of one layer a view will do: the gradient of a selection is copied into zeros.
            last=h_end.squeeze(0) if self.layers == 1 else h_end[-1],
            memory=own,
            state=State(result.read, result.write, own, tuple(others)),
            shared=tuple(others),
            keys=result.keys[0] if trace else None,
            shared_keys=result.keys[1:],
        )


def full_lengths(slots: Tensor) -> Tensor:
    """Give the lengths [B] of a memory whose slots are all real."""
    return torch.full(slots.shape[:1], slots.shape[1], dtype=torch.long, device=slots.device)
