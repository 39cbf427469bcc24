"""Greedy search and beam search for translations."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from nse.nn.decoder import DecoderSource, DecoderState
from nse.nn.text_model import BEGIN, END, PAD


class NextWordModel(Protocol):
    """A model that predicts a translation word by word."""

    def predict_next(
        self, word: Tensor, source: DecoderSource, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """Compute log probabilities [B, V] of the word after this one [B].

        Returns:
            The log probabilities, the next state, and the position of the most attended source word [B].
        """
        ...


class Translations(NamedTuple):
    """The translations of a batch."""

    ids: Tensor  # [B, max_length], padded after the end of each
    positions: Tensor  # [B, max_length], position of the source word that each word attended to most
    log_probs: Tensor  # [B], log probability of each whole translation


def greedy(model: NextWordModel, source: DecoderSource, state: DecoderState, max_length: int) -> Translations:
    """Take the most likely next word, until the end or `max_length` words."""
    B, device = len(state.attended), state.attended.device
    ids = torch.zeros(B, max_length, dtype=torch.long, device=device)
    positions = torch.zeros_like(ids)
    word = torch.full((B,), BEGIN, device=device)
    done = torch.zeros(B, dtype=torch.bool, device=device)
    total = torch.zeros(B, device=device)
    for t in range(max_length):
        log_probs, state, position = model.predict_next(word, source, state)
        best, word = log_probs.max(dim=-1)
        total += best.masked_fill(done, 0)
        done |= word == END
        if bool(done.all()):
            break
        ids[:, t], positions[:, t] = word.masked_fill(done, PAD), position.masked_fill(done, 0)
    return Translations(ids, positions, total)


def beam_search(
    model: NextWordModel,
    source: DecoderSource,
    state: DecoderState,
    max_length: int,
    beam: int,
    penalty: float,
) -> Translations:
    """Find the best translation of at most `max_length` words among `beam` candidates.

    Candidates are ranked by log probability / length^penalty, where the end counts as a word.
    """
    B, device = len(state.attended), state.attended.device
    first = torch.arange(B, device=device)[:, None] * beam  # [B, 1], first row of each sentence's candidates
    rows = torch.arange(B, device=device).repeat_interleave(beam)
    source, state = source.select(rows), state.select(rows)
    ids = torch.zeros(B * beam, max_length, dtype=torch.long, device=device)
    positions = torch.zeros_like(ids)
    word = torch.full((B * beam,), BEGIN, device=device)
    done = torch.zeros(B * beam, dtype=torch.bool, device=device)
    lengths = torch.zeros(B * beam, device=device)
    total = torch.zeros(B, beam, device=device)
    total[:, 1:] = float("-inf")  # all candidates begin alike: the first step expands only one of them
    for t in range(max_length):
        log_probs, state, position = model.predict_next(word, source, state)
        log_probs[done] = float("-inf")
        log_probs[done, PAD] = 0.0  # a finished candidate goes on with padding, at no cost
        lengths = lengths + (~done)
        sums = total.flatten()[:, None] + log_probs
        top = (sums / lengths[:, None] ** penalty).view(B, -1).topk(beam).indices
        rows, word = (first + top // log_probs.shape[1]).flatten(), (top % log_probs.shape[1]).flatten()
        total = sums.view(B, -1).gather(1, top)
        ids, positions, lengths, done = ids[rows], positions[rows], lengths[rows], done[rows]
        state, done = state.select(rows), done | (word == END)
        ids[:, t], positions[:, t] = word.masked_fill(done, PAD), position[rows].masked_fill(done, 0)
        word = word.masked_fill(done, END)
        if bool(done.all()):
            break
    return Translations(ids[first.flatten()], positions[first.flatten()], total[:, 0])
