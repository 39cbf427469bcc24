"""Quantified English sentences with an exact meaning, and the label of a pair of them.

A sentence is a quantifier, a subject and a predicate: `not all small dogs that bark are brown`. A pair is
labelled by enumerating models, not by inference rules. The meaning of the words:

* Nouns form a tree: every poodle is a dog, every dog an animal. Whether a dog can be a cat is left open: it
  decides no label, because nouns only select the subjects.
* Verbs form trees too: who waltzes dances, who dances moves. Siblings are independent: one may run and dance.
* Adjectives are independent of everything.
* Subjects exist (existential import): `QUANTIFIERS` are true or false by `pos` and `neg`, the numbers of
  subjects that do and do not satisfy the predicate.

The premise entails the hypothesis when the hypothesis holds in every model of the premise, contradicts it
when it holds in none, and is neutral to it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from itertools import product

from nse.errors import InputError

LABELS = ("entailment", "contradiction", "neutral")
"""The names of the labels, in the order of their numbers."""

ENTAILMENT, CONTRADICTION, NEUTRAL = range(3)

Tree = dict[str, str | None]
"""Parent of each word, the more general word that it implies; parents come before their children."""

NOUNS: Tree = {"animals": None, "dogs": "animals", "cats": "animals", "poodles": "dogs", "beagles": "dogs"}
VERBS: Tree = {"move": None, "dance": "move", "run": "move", "waltz": "dance", "bark": None}
ADJECTIVES: Tree = {"small": None, "brown": None, "old": None}
IMPLIES = NOUNS | VERBS | ADJECTIVES

QUANTIFIERS: dict[str, Callable[[int, int], bool]] = {
    "all": lambda pos, neg: neg == 0 and pos > 0,
    "some": lambda pos, neg: pos > 0,
    "no": lambda pos, neg: pos == 0 and neg > 0,
    "not all": lambda pos, neg: neg > 0,
    "most": lambda pos, neg: pos > neg,
}

# Every set of words that can be true of one individual.
_REGIONS: list[frozenset[str]] = [frozenset()]
for _word, _general in IMPLIES.items():
    _REGIONS += [region | {_word} for region in _REGIONS if _general is None or _general in region]
# A set of regions is an integer with a bit for each region, so that intersections are fast.
EVERYWHERE = (1 << len(_REGIONS)) - 1
EXTENSION = {word: sum(1 << i for i, region in enumerate(_REGIONS) if word in region) for word in IMPLIES}


@dataclass(frozen=True, slots=True)
class Property:
    """Verb or adjective, perhaps negated."""

    word: str
    negated: bool = False

    def __str__(self) -> str:
        if self.word in VERBS:
            return f"do not {self.word}" if self.negated else self.word
        return f"are not {self.word}" if self.negated else f"are {self.word}"

    def negate(self) -> Property:
        """Return the opposite property."""
        return Property(self.word, not self.negated)

    def find_regions(self) -> int:
        """Return the regions where the property holds."""
        return EVERYWHERE & ~EXTENSION[self.word] if self.negated else EXTENSION[self.word]


@dataclass(frozen=True, slots=True)
class Sentence:
    """Quantified sentence; `str(sentence)` is its text."""

    quantifier: str
    noun: str
    predicate: Property
    adjective: str | None = None
    clause: Property | None = None

    def __str__(self) -> str:
        adjective = f"{self.adjective} " if self.adjective else ""
        clause = f" that {self.clause}" if self.clause else ""
        return f"{self.quantifier} {adjective}{self.noun}{clause} {self.predicate}"

    def list_words(self) -> list[str]:
        """List the noun, verbs and adjectives of the sentence."""
        words = [self.predicate.word, self.clause.word if self.clause else None, self.adjective, self.noun]
        return [word for word in words if word]

    def compute_roles(self) -> tuple[int, int, int]:
        """Return the regions of subjects with the predicate, subjects without it, and other individuals."""
        subject = EXTENSION[self.noun]
        if self.adjective:
            subject &= EXTENSION[self.adjective]
        if self.clause:
            subject &= self.clause.find_regions()
        predicate = self.predicate.find_regions()
        return subject & predicate, subject & ~predicate, EVERYWHERE & ~subject


Cells = tuple[bool, ...]
"""Roles that some region combines: (pos, neg, outside) of the premise times those of the hypothesis."""


def list_cells(premise: Sentence, hypothesis: Sentence) -> Cells:
    """List the cells of two sentences; their quantifiers do not matter."""
    first, second = premise.compute_roles(), hypothesis.compute_roles()
    return tuple([bool(p & h) for p in first for h in second])[:8]  # outside both, no individual matters


@cache
def _find_true_quantifiers(pos: int, neg: int) -> frozenset[str]:
    return frozenset(quantifier for quantifier, holds in QUANTIFIERS.items() if holds(pos, neg))


# Two individuals per cell suffice. A quantifier is true, or false, if some counts are zero, which removing
# individuals keeps, and one more condition holds: a witness in some cell, pos > neg, or pos <= neg. So two
# sentences make two such conditions. Two witnesses are two individuals. A witness that counts against the
# other sentence's pos > neg is outvoted by two in a cell that counts for it. And if both conditions compare
# pos with neg, every individual adds a vector of {-1, 0, 1}² to (pos - neg) of the two sentences; a quadrant
# that a sum of such vectors reaches is reached by two of them, each taken at most twice.
INDIVIDUALS = 2


@cache
def _enumerate_models(cells: Cells, individuals: int) -> frozenset[tuple[frozenset[str], frozenset[str]]]:
    """List the quantifiers true of each sentence in every model with up to `individuals` per cell."""
    counts = [range(individuals + 1) if inhabitable else range(1) for inhabitable in cells]
    return frozenset(
        (_find_true_quantifiers(a + b + c, d + e + f), _find_true_quantifiers(a + d + g, b + e + h))
        for a, b, c, d, e, f, g, h in product(*counts)
    )


@cache
def find_label(cells: Cells, premise: str, hypothesis: str, individuals: int = INDIVIDUALS) -> int | None:
    """Label two quantifiers over the same cells; None if one of them holds in no model."""
    outcomes = _enumerate_models(cells, individuals)
    if not any(hypothesis in second for _, second in outcomes):
        return None
    follows = {hypothesis in second for first, second in outcomes if premise in first}
    if len(follows) == 2:
        return NEUTRAL
    return {True: ENTAILMENT, False: CONTRADICTION}[follows.pop()] if follows else None


def label(premise: Sentence, hypothesis: Sentence) -> int | None:
    """Label a pair by enumerating models.

    Args:
        premise: Sentence that is assumed to be true.
        hypothesis: Sentence that follows from it, contradicts it, or neither.

    Returns:
        Index in `LABELS`, or None if the premise or the hypothesis can never be true. No hypothesis is always
        true: without individuals, no sentence holds.
    """
    return find_label(list_cells(premise, hypothesis), premise.quantifier, hypothesis.quantifier)


class _Parser:
    """Words of a text that are not parsed yet."""

    def __init__(self, text: str) -> None:
        self.rest = text.lower().split()
        self.length = len(self.rest)

    def take(self, words: Collection[str], expected: str = "") -> str:
        """Remove and return the next word if it is in `words`; else raise if something is expected."""
        if self.rest and self.rest[0] in words:
            return self.rest.pop(0)
        if expected:
            place = f"{self.rest[0]!r} (word {self.length - len(self.rest) + 1})" if self.rest else "the end"
            choice = f": {', '.join(words)}" if words else ""
            raise InputError(f"text: at {place}: expected {expected}{choice}")
        return ""

    def take_property(self) -> Property:
        word = self.take((*VERBS, "do", "are"), "a verb, 'do not' or 'are'")
        if word == "do":
            self.take(("not",), "the negation")
            return Property(self.take(VERBS, "a verb"), negated=True)
        if word == "are":
            negated = bool(self.take(("not",)))
            return Property(self.take(ADJECTIVES, "an adjective"), negated)
        return Property(word)


def parse(text: str) -> Sentence:
    """Parse a sentence, the inverse of `str`.

    Args:
        text: Words separated by spaces, such as `most dogs that do not bark are old`.

    Raises:
        InputError: If the grammar does not allow a word; the message names it and the expected words.
    """
    parser = _Parser(text)
    quantifier = parser.take([name.split()[0] for name in QUANTIFIERS], "a quantifier")
    if quantifier == "not":
        quantifier += " " + parser.take(("all",), "the rest of the quantifier")
    adjective = parser.take(ADJECTIVES) or None
    nouns = (NOUNS, "a noun") if adjective else ((*NOUNS, *ADJECTIVES), "a noun or an adjective")
    noun = parser.take(*nouns)
    clause = parser.take_property() if parser.take(("that",)) else None
    predicate = parser.take_property()
    if parser.rest:
        parser.take((), "nothing more")
    return Sentence(quantifier, noun, predicate, adjective, clause)
