"""BLEU as multi-bleu.perl computes it: of words as they are, without smoothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

SPACES = {n: "_" for n in range(0x3001) if chr(n).isspace() and chr(n) not in " \t\n\r"}
"""White space for Python that is none for Perl, which reads bytes."""


def bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """From 0 to 1; each text is its words with spaces between, and has one reference."""
    if len(translations) != len(references):
        raise ValueError(f"{len(translations)} translations for {len(references)} references")
    if not references:
        return 0.0
    found, wanted = ([text.translate(SPACES) for text in texts] for texts in (translations, references))
    score = _metric().corpus_score(found, [wanted]).score
    return min(1.0, float(score) / 100)  # rounding may lead a little above


def signature() -> str:
    """How it is computed, in sacrebleu's own words."""
    metric = _metric()
    metric.corpus_score(["a"], [["a"]])  # it speaks after it has worked
    return str(metric.get_signature())


@cache
def _metric() -> Any:
    from sacrebleu.metrics.bleu import BLEU  # takes a while

    # Without force it warns that the texts look tokenized, which they are.
    return BLEU(tokenize="none", smooth_method="none", force=True)
