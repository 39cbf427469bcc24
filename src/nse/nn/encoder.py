"""`NSE`, the encoder: reads a sequence step by step while it rewrites a memory with one slot per word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from nse.nn import arguments
from nse.nn.init import init_lookup
from nse.ops.dispatch import choose_backend, recurrence
from nse.ops.types import LSTMLayer, Memory, State, Weights, make_full_lengths


class Encoding(NamedTuple):
    """Result of an encoder.

    Attributes:
        outputs: [B, T, k], h_t, zero in the padding.
        last: [B, k], h after each sequence's last word; of an empty sequence, the initial h.
        memory: The own memory after the last step.
        state: The states of both LSTMs and the memories, to continue from.
        shared: The shared memories after the last step.
        keys: z [B, T, L], the weights with which each step read and wrote the slots; `None` without `trace`.
        shared_keys: The same for each shared memory.
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

    At each step it reads (an LSTM over the words gives o_t, which attends over the memory: m_t), composes (a
    linear layer over o_t and m_t gives c_t) and writes (a second LSTM over c_t gives h_t, which replaces each
    slot to the degree to which it was read). A sequence's result does not depend on the rest of the batch,
    the padding or the backend.

        encoder = NSE(300)
        out = encoder(x, lengths)  # x [B, T, 300]
        out.outputs, out.last, out.memory

    Args:
        size: k, the size of words, slots and outputs.
        shared: Number of memories of other encoders to read and write as well.
        layers: Number of layers of the read and of the write LSTM.
        dropout: Dropout rate on x_t before the read LSTM and on c_t before the write LSTM, with a fresh mask
            at each step. The memory is never dropped.
        backend: "auto", "triton", "cpu", "torch" or "reference". "auto" takes the environment variable
            NSE_BACKEND; if it is not set, "triton" on a CUDA device that supports it, "cpu" on a CPU where it
            is compiled, and "torch" elsewhere.
        padding: "masked" respects lengths. "paper" ignores them, as the original code does: pads are words,
            which are read, attended to and written; put them on the left.
        blanks: Number of learned slots in front of the memory, the same for every sequence, as scratch space.
            Not used when `memory` or `state` is passed.
        starts: Number of learned words in front of every sequence; each is a step and has a slot, after the
            blank ones. Outputs leave them out, and so do keys unless `trace="all"`. Not used when `memory` or
            `state` is passed.
        init: "uniform", as in the paper, or "lookup": at first each step looks up its word in the memory, so
            that words, outputs and slots share one space (see `nse.nn.init`).
        init_range: Weights and biases are drawn from (-init_range, init_range), before any lookup.
        check_finite: Raise an `InputError` if x or a memory holds NaN or infinity. Waits for a GPU.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Attributes:
        blank: [blanks, k], the blank slots, or `None`.
        start: [starts, k], the start words, or `None`.
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
        counts = {"size": (size, 1), "shared": (shared, 0), "layers": (layers, 1)}
        arguments.check_counts(**counts, blanks=(blanks, 0), starts=(starts, 0))
        arguments.check_options(dropout, padding, init, init_range)
        choose_backend(backend)  # refuse an unknown name here, not at the first batch
        super().__init__()
        self.size, self.shared, self.layers, self.dropout = size, shared, layers, dropout
        self.backend, self.padding = backend, padding
        self.init, self.init_range, self.check_finite = init, init_range, check_finite
        d = (2 + shared) * size
        self.read = nn.LSTM(size, size, layers, batch_first=True, device=device, dtype=dtype)
        self.compose = nn.Linear(d, d, device=device, dtype=dtype)
        self.write = nn.LSTM(d, size, layers, batch_first=True, device=device, dtype=dtype)
        self.blank = nn.Parameter(torch.empty(blanks, size, device=device, dtype=dtype)) if blanks else None
        self.start = nn.Parameter(torch.empty(starts, size, device=device, dtype=dtype)) if starts else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights and biases again."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -self.init_range, self.init_range)
        if self.init == "lookup":
            init_lookup(self.read, self.compose, self.write)

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
            x: [B, T, k], or a `PackedSequence`, whose outputs are returned padded, in the original order.
            lengths: [B], the length of each sequence, 0 to T; `None` means T.
            memory: Start from this memory, of any length, instead of from x.
            shared: Memories of other encoders, as many as the constructor's `shared`.
            state: Continue from the LSTM states of an earlier call, instead of zeros. Its memories are not
                used: pass `memory=` (and `shared=`) to continue with them.
            trace: Return the keys; with "all" those of the start words too.
        """
        if isinstance(x, PackedSequence):
            if lengths is not None:
                raise arguments.make_error("lengths", "None, since a PackedSequence has its own", lengths)
            x, lengths = pad_packed_sequence(x, batch_first=True)
        weight = self.compose.weight
        arguments.check_tensor("x", x, ("B", "T", self.size), weight)
        lengths = arguments.check_lengths("lengths", lengths, len(x), x.shape[1], x.device)
        is_new = memory is None and state is None
        starts = len(self.start) if is_new and self.start is not None else 0
        if starts and self.start is not None:
            x = torch.cat([self.start.to(x.dtype).expand(len(x), -1, -1), x], dim=1)
            lengths = None if lengths is None else lengths + starts
        if memory is None:
            memory = Memory(x, lengths)
            if is_new and self.blank is not None:
                memory = memory.prepend(self.blank.to(x.dtype))
        memories = arguments.check_memories(memory, shared, self.shared, len(x), self.size, weight)
        if self.padding == "paper":
            lengths, memories = None, [Memory(slots) for slots, _ in memories]
        if self.check_finite:
            arguments.check_finite(x, lengths, memories)
        encoding = self._run(x, lengths, memories, state, bool(trace))
        if not starts:
            return encoding
        outputs, keys, shared_keys = encoding.outputs[:, starts:], encoding.keys, encoding.shared_keys
        if keys is not None and trace != "all":
            keys, shared_keys = keys[:, starts:], tuple(z[:, starts:] for z in shared_keys)
        return encoding._replace(outputs=outputs, keys=keys, shared_keys=shared_keys)

    def _run(
        self, x: Tensor, lengths: Tensor | None, memories: list[Memory], state: State | None, trace: bool
    ) -> Encoding:
        dtype = self.compose.weight.dtype  # under autocast, x may have another one
        x, c_mask = x.to(dtype), None
        memories = [Memory(slots.to(dtype), slot_lengths) for slots, slot_lengths in memories]
        read, write = arguments.check_state(state, self.layers, len(x), self.size, self.compose.weight)
        if self.training and self.dropout:
            x = F.dropout(x, self.dropout)
            c_mask = F.dropout(x.new_ones(*x.shape[:2], self.compose.in_features), self.dropout)
        weights = self.get_weights()
        result = recurrence(
            x, lengths, tuple(memories), read, write, weights, c_mask, keys=trace, backend=self.backend
        )
        own, *shared = (
            Memory(slots, make_full_lengths(slots) if slot_lengths is None else slot_lengths)
            for slots, (_, slot_lengths) in zip(result.memories, memories, strict=True)
        )
        h_end = result.write[0]
        return Encoding(
            outputs=result.outputs,
            # With one layer a view: the gradient of h_end[-1] would be copied into zeros.
            last=h_end.squeeze(0) if self.layers == 1 else h_end[-1],
            memory=own,
            state=State(result.read, result.write, own, tuple(shared)),
            shared=tuple(shared),
            keys=result.keys[0] if trace else None,
            shared_keys=result.keys[1:],
        )

    def step(
        self,
        x_t: Tensor,
        state: State | None = None,
        *,
        memory: Memory | Tensor | None = None,
        shared: Sequence[Memory | Tensor] | None = None,
        trace: bool = False,
    ) -> Encoding:
        """Take one step, for decoders. Steps give the same numbers as one call over the whole sequence.

            state = encoder.step(x_1, memory=source.memory).state
            state = encoder.step(x_2, state).state

        Args:
            x_t: [B, k].
            state: State to continue from, with its memories; `None` means zeros, and needs `memory`.
            memory: Use this memory instead of the state's.
            shared: Use these memories instead of the state's.
            trace: Return the keys.

        Returns:
            The encoding of a sequence of one word: `last` is h_t, `state` is for the next step.
        """
        arguments.check_tensor("x_t", x_t, ("B", self.size), self.compose.weight)
        memory, shared = arguments.choose_memories(state, memory, shared)
        encoding: Encoding = self(x_t[:, None], memory=memory, shared=shared, state=state, trace=trace)
        return encoding

    def get_weights(self) -> Weights:
        """Return the parameters in the form that `nse.ops` takes."""
        read, write = (
            tuple(LSTMLayer(*layer) for layer in lstm.all_weights) for lstm in (self.read, self.write)
        )
        return Weights(read, self.compose.weight, self.compose.bias, write)

    def extra_repr(self) -> str:
        """Return the settings for `repr`."""
        names = ("shared", "layers", "dropout", "backend", "padding")
        settings = [str(self.size), *(f"{name}={getattr(self, name)!r}" for name in names)]
        learned = {"blanks": self.blank, "starts": self.start}
        return ", ".join(settings + [f"{name}={len(p)}" for name, p in learned.items() if p is not None])
