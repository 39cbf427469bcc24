"""How a translation is found: word after word the best one, or several translations at a time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from nse.nn.decoder import Source, Standing
from nse.nn.text_model import BEGIN, END, PAD


class Translates(Protocol):
    """A model that tells the next word."""

    def next(self, word: Tensor, source: Source, now: Standing) -> tuple[Tensor, Standing, Tensor]:
        """Give log probabilities [B, V] of the word after this one [B], and where it attended to [B]."""
        ...


class Found(NamedTuple):
    """Translations."""

    ids: Tensor  # [B, most], padding from the end of each on
    places: Tensor  # [B, most], for each word the place of the source word that was most attended to
    likely: Tensor  # [B], the log probability of each whole translation


def greedy(model: Translates, source: Source, now: Standing, most: int) -> Found:
    """Take the best next word, until the end or `most` words."""
    B, device = len(now.attended), now.attended.device
    ids = torch.zeros(B, most, dtype=torch.long, device=device)
    places = torch.zeros_like(ids)
    word = torch.full((B,), BEGIN, device=device)
    done = torch.zeros(B, dtype=torch.bool, device=device)
    total = torch.zeros(B, device=device)
    for t in range(most):
        likely, now, place = model.next(word, source, now)
        best, word = likely.max(dim=-1)
        total += best.masked_fill(done, 0)
        done |= word == END
        if bool(done.all()):
            break
        ids[:, t], places[:, t] = word.masked_fill(done, PAD), place.masked_fill(done, 0)
    return Found(ids, places, total)


def beam_search(
    model: Translates, source: Source, now: Standing, most: int, beam: int, penalty: float
) -> Found:
    """Find the best of several translations of at most `most` words, of which `beam` are followed at a time.

    They are compared by their log probability divided by the power `penalty` of their words, the end counted.
    """
    B, device = len(now.attended), now.attended.device
    first = torch.arange(B, device=device)[:, None] * beam  # [B, 1], where the translations of each begin
    source = source.select(torch.arange(B, device=device).repeat_interleave(beam))
    now = now.select(torch.arange(B, device=device).repeat_interleave(beam))
    ids = torch.zeros(B * beam, most, dtype=torch.long, device=device)
    places = torch.zeros_like(ids)
    word = torch.full((B * beam,), BEGIN, device=device)
    done = torch.zeros(B * beam, dtype=torch.bool, device=device)
    sizes = torch.zeros(B * beam, device=device)
    total = torch.zeros(B, beam, device=device)
    total[:, 1:] = float("-inf")  # all begin alike: one of them is enough
    for t in range(most):
        likely, now, place = model.next(word, source, now)
        likely[done] = float("-inf")
        likely[done, PAD] = 0.0  # what has ended stays as it is
        sizes = sizes + (~done)
        sums = total.flatten()[:, None] + likely
        at = (sums / sizes[:, None] ** penalty).view(B, -1).topk(beam).indices
        rows, word = (first + at // likely.shape[1]).flatten(), (at % likely.shape[1]).flatten()
        total = sums.view(B, -1).gather(1, at)
        ids, places, sizes, done, now = ids[rows], places[rows], sizes[rows], done[rows], now.select(rows)
        done = done | (word == END)
        ids[:, t], places[:, t] = word.masked_fill(done, PAD), place[rows].masked_fill(done, 0)
        word = word.masked_fill(done, END)
        if bool(done.all()):
            break
    return Found(ids[first.flatten()], places[first.flatten()], total[:, 0])
