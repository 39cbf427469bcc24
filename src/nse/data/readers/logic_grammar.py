"""Quantified English sentences with an exact meaning: which of them follows from which.

A sentence is a quantifier, a subject and a predicate: `not all small dogs that bark are brown`. A pair is
labelled by looking at every model, never by inference rules. What the words mean:

* Nouns form a tree: every poodle is a dog, every dog an animal. Whether a dog can be a cat decides no label,
  because nouns only choose who is spoken of; so it is left open.
* Verbs form trees too: who waltzes dances, who dances moves. Siblings are independent: one may run and dance.
* Adjectives are independent of everything.
* A sentence speaks of subjects that exist (existential import). With `pos` and `neg` the numbers of
  subjects that do and do not satisfy the predicate:

| quantifier | true when |
| --- | --- |
| all | neg = 0 and pos > 0 |
| some | pos > 0 |
| no | pos = 0 and neg > 0 |
| not all | neg > 0 |
| most | pos > neg |

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

# Each word with the more general word that it implies; a general word comes before its special ones.
NOUNS: dict[str, str | None] = {
    "animals": None,
    "dogs": "animals",
    "cats": "animals",
    "poodles": "dogs",
    "beagles": "dogs",
}
VERBS: dict[str, str | None] = {"move": None, "dance": "move", "run": "move", "waltz": "dance", "bark": None}
ADJECTIVES: dict[str, str | None] = {"small": None, "brown": None, "old": None}
IMPLIES = NOUNS | VERBS | ADJECTIVES

QUANTIFIERS: dict[str, Callable[[int, int], bool]] = {
    "all": lambda pos, neg: neg == 0 and pos > 0,
    "some": lambda pos, neg: pos > 0,
    "no": lambda pos, neg: pos == 0 and neg > 0,
    "not all": lambda pos, neg: neg > 0,
    "most": lambda pos, neg: pos > neg,
}


def _regions() -> list[frozenset[str]]:
    """Every set of words that can be true of one individual together."""
    regions: list[frozenset[str]] = [frozenset()]
    for word, general in IMPLIES.items():
        regions += [region | {word} for region in regions if general is None or general in region]
    return regions


_REGIONS = _regions()
# A set of regions is an integer with a bit for each of them: intersecting two sets is one fast operation.
EVERYWHERE = (1 << len(_REGIONS)) - 1
EXTENSION = {word: sum(1 << i for i, region in enumerate(_REGIONS) if word in region) for word in IMPLIES}


@dataclass(frozen=True, slots=True)
class Property:
    """What a verb or an adjective, perhaps negated, says of an individual."""

    word: str
    negated: bool = False

    def __str__(self) -> str:
        if self.word in VERBS:
            return f"do not {self.word}" if self.negated else self.word
        return f"are not {self.word}" if self.negated else f"are {self.word}"

    def negation(self) -> Property:
        """The property of everything that lacks this one."""
        return Property(self.word, not self.negated)

    def regions(self) -> int:
        """Where the property holds."""
        return EVERYWHERE & ~EXTENSION[self.word] if self.negated else EXTENSION[self.word]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A quantified sentence; `str(sentence)` is its text."""

    quantifier: str
    noun: str
    predicate: Property
    adjective: str | None = None
    clause: Property | None = None

    def __str__(self) -> str:
        adjective = f"{self.adjective} " if self.adjective else ""
        clause = f" that {self.clause}" if self.clause else ""
        return f"{self.quantifier} {adjective}{self.noun}{clause} {self.predicate}"

    def content(self) -> list[str]:
        """The noun, verbs and adjectives of the sentence."""
        words = [self.predicate.word, self.clause.word if self.clause else None, self.adjective, self.noun]
        return [word for word in words if word]

    def roles(self) -> tuple[int, int, int]:
        """Where individuals are subjects with the predicate, subjects without it, and no subjects."""
        subject = EXTENSION[self.noun]
        if self.adjective:
            subject &= EXTENSION[self.adjective]
        if self.clause:
            subject &= self.clause.regions()
        predicate = self.predicate.regions()
        return subject & predicate, subject & ~predicate, EVERYWHERE & ~subject


Cells = tuple[bool, ...]
"""Which joint roles some region allows: (pos, neg, outside) of the premise times those of the hypothesis."""


def joint_cells(premise: Sentence, hypothesis: Sentence) -> Cells:
    """The cells of two sentences; their quantifiers do not matter."""
    here, there = premise.roles(), hypothesis.roles()
    return tuple([bool(p & h) for p in here for h in there])[:8]  # outside both, nobody matters


@cache
def _truths(pos: int, neg: int) -> frozenset[str]:
    return frozenset(quantifier for quantifier, holds in QUANTIFIERS.items() if holds(pos, neg))


# Two individuals a cell show everything. For a quantifier to be true, or false, some counts must be zero,
# which removing individuals keeps, and one thing more must hold: a witness in some cell, pos > neg, or
# pos <= neg. So two sentences make two demands. Two witnesses are two individuals. A witness that counts
# against the other sentence's pos > neg is outvoted by two in a cell that counts for it. And if both demands
# compare pos with neg, every individual adds a vector of {-1, 0, 1}² to (pos - neg) of the two sentences; a
# quadrant that a sum of such vectors reaches is reached by two of them already, each taken at most twice.
INDIVIDUALS = 2


@cache
def _outcomes(cells: Cells, individuals: int) -> frozenset[tuple[frozenset[str], frozenset[str]]]:
    """The quantifiers that hold of premise and hypothesis in each model with so many individuals a cell."""
    counts = [range(individuals + 1) if inhabitable else range(1) for inhabitable in cells]
    return frozenset(
        (_truths(a + b + c, d + e + f), _truths(a + d + g, b + e + h))
        for a, b, c, d, e, f, g, h in product(*counts)
    )


@cache
def verdict(cells: Cells, premise: str, hypothesis: str, individuals: int = INDIVIDUALS) -> int | None:
    """The label of two quantifiers over the same cells; None when one of them holds in no model at all."""
    outcomes = _outcomes(cells, individuals)
    if not any(hypothesis in there for _, there in outcomes):
        return None
    follows = {hypothesis in there for here, there in outcomes if premise in here}
    if len(follows) == 2:
        return NEUTRAL
    return {True: ENTAILMENT, False: CONTRADICTION}[follows.pop()] if follows else None


def label(premise: Sentence, hypothesis: Sentence) -> int | None:
    """Decides a pair by looking at every model.

    Args:
        premise: what is taken to be true.
        hypothesis: what is asked.

    Returns:
        The position in `LABELS`, or None when the premise or the hypothesis can never be true. No
        hypothesis is always true: where nothing exists, no sentence holds.
    """
    return verdict(joint_cells(premise, hypothesis), premise.quantifier, hypothesis.quantifier)


class _Reader:
    """Takes the words of a text one by one and says what it expected when one does not fit."""

    def __init__(self, text: str) -> None:
        self.words = text.lower().split()
        self.position = 0

    def next_in(self, words: Collection[str]) -> bool:
        return self.position < len(self.words) and self.words[self.position] in words

    def take(self, what: str, words: Collection[str]) -> str:
        if not self.next_in(words):
            raise self.error(f"expected {what}: {', '.join(words)}")
        self.position += 1
        return self.words[self.position - 1]

    def skip(self, word: str) -> bool:
        found = self.next_in((word,))
        self.position += found
        return found

    def end(self) -> None:
        if self.position < len(self.words):
            raise self.error("expected nothing more")

    def error(self, problem: str) -> InputError:
        rest = self.words[self.position :]
        place = f"{rest[0]!r} (word {self.position + 1})" if rest else "the end"
        return InputError(f"text: at {place}: {problem}")

    def property(self) -> Property:
        word = self.take("a verb, 'do not' or 'are'", (*VERBS, "do", "are"))
        if word in VERBS:
            return Property(word)
        if word == "do":
            self.take("the negation", ("not",))
            return Property(self.take("a verb", VERBS), negated=True)
        negated = self.skip("not")
        return Property(self.take("an adjective", ADJECTIVES), negated)


def parse(text: str) -> Sentence:
    """Reads a sentence from its text, the inverse of `str`.

    Args:
        text: words separated by spaces, such as `most dogs that do not bark are old`.

    Returns:
        The sentence.

    Raises:
        InputError: a word does not fit; the message names it and what could stand there.
    """
    reader = _Reader(text)
    quantifier = reader.take("a quantifier", [name.split()[0] for name in QUANTIFIERS])
    if quantifier == "not":
        quantifier += " " + reader.take("the rest of the quantifier", ("all",))
    adjective = reader.take("an adjective", ADJECTIVES) if reader.next_in(ADJECTIVES) else None
    noun = (
        reader.take("a noun", NOUNS)
        if adjective
        else reader.take("a noun or an adjective", (*NOUNS, *ADJECTIVES))
    )
    clause = reader.property() if reader.skip("that") else None
    predicate = reader.property()
    reader.end()
    return Sentence(quantifier, noun, predicate, adjective, clause)
