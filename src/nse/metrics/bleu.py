"""BLEU as multi-bleu.perl computes it: of tokens as they are, without smoothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

SPACES = {n: "_" for n in range(0x3001) if chr(n).isspace() and chr(n) not in " \t\n\r"}
"""White space in Python, but not in Perl, which reads bytes."""


def bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """Compute corpus BLEU, from 0 to 1.

    Args:
        translations: Tokens joined by spaces.
        references: One for each translation, in the same format.
    """
    if len(translations) != len(references):
        raise ValueError(f"{len(translations)} translations for {len(references)} references")
    if not references:
        return 0.0
    hypotheses, targets = ([text.translate(SPACES) for text in texts] for texts in (translations, references))
    score = _load_sacrebleu().corpus_score(hypotheses, [targets]).score
    return min(1.0, float(score) / 100)  # rounding may exceed 1 a little


def get_signature() -> str:
    """Return sacrebleu's signature, which says how BLEU is computed."""
    metric = _load_sacrebleu()
    metric.corpus_score(["a"], [["a"]])  # the signature needs a score first
    return str(metric.get_signature())


@cache
def _load_sacrebleu() -> Any:
    from sacrebleu.metrics.bleu import BLEU  # a slow import

    # `force` turns off the warning that the texts look tokenized, as they are.
    return BLEU(tokenize="none", smooth_method="none", force=True)
