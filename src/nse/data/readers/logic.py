"""The built-in inference corpus: seeded sentence pairs whose labels are exact.

What the sentences mean, and how a pair is decided by looking at every model, is in `logic_grammar`. Here
pairs are drawn: a random premise, a hypothesis that is a few edits away, and quantifiers that give the
wanted label.

Counting words cannot solve the corpus, because most pairs come from words that can also be ordered into a
pair with another label: `all dogs that bark do not dance` contradicts `some dogs that dance bark`, but
`all dogs that do not bark dance` does not.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations, product

from nse.data.readers import logic_grammar as grammar
from nse.data.readers.logic_grammar import LABELS, NOUNS, QUANTIFIERS, VERBS, Property, Sentence, label, parse
from nse.data.sources import Rows
from nse.errors import InputError

__all__ = [
    "LABELS",
    "LogicData",
    "Pair",
    "Property",
    "Sentence",
    "generate_pairs",
    "label",
    "parse",
    "sample_combinations",
]

NAME = "logic"  # of the corpus, as of a data set
PLAIN = 0.1  # of draws need no reordering with another label, so that short sentences occur too
PATIENCE = 10_000  # after so many draws in a row that bring nothing new, there is no more
OPEN = "all"  # stands in until a quantifier is chosen


@dataclass(frozen=True)
class Pair:
    """Two sentences and how the second relates to the first."""

    premise: str  # what is taken to be true, in lower-case words separated by single spaces
    hypothesis: str  # what is asked, written alike
    label: int  # the position in `LABELS`


@dataclass
class LogicData:
    """How many pairs to generate, and from which seed."""

    train: int = 30_000
    """Pairs to train on. Far above the default the reorderings run out, and counting words pays more."""
    dev: int = 1_000
    """Pairs to choose a model by."""
    test: int = 3_000
    """Pairs like the training pairs, none of which occurs among them."""
    unseen: int = 2_000
    """Pairs in which words stand together that never do so in the other splits."""
    seed: int = 0
    """Every seed and every set of sizes has its own corpus, the same on every machine."""


Draft = tuple[Sentence, Sentence]
Fits = Callable[[Draft], bool]


def _worth_saying(s: Sentence) -> bool:
    """Tell whether a sentence repeats no word and being its subject does not already decide its predicate."""
    content, (pos, neg, _) = s.list_words(), s.compute_roles()
    return len(set(content)) == len(content) and bool(pos) and bool(neg)


_PROPERTIES = [Property(word, negated) for word in [*VERBS, *grammar.ADJECTIVES] for negated in (False, True)]


@cache
def _sentences(adjective: bool, clause: bool) -> list[Sentence]:
    """List every sentence worth saying with or without an adjective and a clause; its quantifier is open."""
    adjectives = list(grammar.ADJECTIVES) if adjective else [None]
    clauses = _PROPERTIES if clause else [None]
    every = product([OPEN], NOUNS, _PROPERTIES, adjectives, clauses)
    return [sentence for parts in every if _worth_saying(sentence := Sentence(*parts))]


def _near(word: str) -> list[str]:
    """List the words directly above, below and beside a word."""
    family = next(family for family in (NOUNS, VERBS, grammar.ADJECTIVES) if word in family)
    above = family[word]
    return [w for w in family if w != word and (w == above or family[w] in (word, above))]


@cache
def _edits(s: Sentence) -> list[list[Sentence]]:
    """Edit a sentence once in every way: a list for each kind of edit that applies."""
    kinds = [
        [replace(s, noun=noun) for noun in _near(s.noun)],
        [replace(s, predicate=replace(s.predicate, word=word)) for word in _near(s.predicate.word)],
        [replace(s, predicate=s.predicate.negate())],
        [replace(s, adjective=adjective) for adjective in ([None] if s.adjective else grammar.ADJECTIVES)],
        [replace(s, clause=clause) for clause in ([None] if s.clause else _PROPERTIES)],
    ]
    if s.clause:
        kinds += [
            [replace(s, clause=replace(s.clause, word=word)) for word in _near(s.clause.word)],
            [replace(s, clause=s.clause.negate())],
            [replace(s, clause=s.predicate, predicate=s.clause)],
        ]
    elif s.adjective:
        kinds.append([replace(s, adjective=None, clause=Property(s.adjective))])
    worthy = [[edited for edited in kind if _worth_saying(edited)] for kind in kinds]
    return [kind for kind in worthy if kind]


@cache
def _reorderings(s: Sentence) -> list[Sentence]:
    """List every sentence worth saying that has the same words as this one, itself among them."""
    *words, noun = s.list_words()
    bag = sorted(str(s).split())
    found = []
    for predicate, *others in permutations(words):
        clause = others.pop(0) if s.clause else None
        adjective = others.pop() if others else None
        for deny_predicate, deny_clause in product((False, True), repeat=2):
            inner = Property(clause, deny_clause) if clause else None
            candidate = Sentence(s.quantifier, noun, Property(predicate, deny_predicate), adjective, inner)
            if sorted(str(candidate).split()) == bag and _worth_saying(candidate):
                found.append(candidate)
    return list(dict.fromkeys(found))


def _draft(rng: random.Random, fits: Fits, wanted: int, clause: bool) -> Draft:
    """Draw a pair with the wanted label whose hypothesis has each quantifier equally often."""
    there = rng.choice(list(QUANTIFIERS))
    while True:
        premise = hypothesis = rng.choice(_sentences(rng.random() < 0.35, clause))
        for _ in range(rng.choice((0, 1, 1, 2))):
            hypothesis = rng.choice(rng.choice(_edits(hypothesis)))
        if not fits((premise, hypothesis)):
            continue
        cells = grammar.list_cells(premise, hypothesis)
        heres = [here for here in QUANTIFIERS if grammar.find_label(cells, here, there) == wanted]
        if premise == hypothesis and there in heres:
            heres.remove(there)
        if heres:
            return replace(premise, quantifier=rng.choice(heres)), replace(hypothesis, quantifier=there)


def _family(rng: random.Random, fits: Fits) -> list[Pair]:
    """Draw one pair, or two that have the same words and different labels.

    The other label is neutral: hardly any words can be ordered into both an entailment and a contradiction.
    The neutral pair goes along half the time, which makes the three labels equally frequent.
    """
    if rng.random() < PLAIN:
        wanted = rng.randrange(3)
        return [_spell(*_draft(rng, fits, wanted, clause=rng.random() < 0.5), wanted)]
    while True:
        wanted = rng.choice((grammar.ENTAILMENT, grammar.CONTRADICTION))
        premise, hypothesis = _draft(rng, fits, wanted, clause=True)
        candidates = list(product(_reorderings(premise), _reorderings(hypothesis)))
        rng.shuffle(candidates)
        if neutral := next((c for c in candidates if label(*c) == grammar.NEUTRAL), None):
            pair = _spell(premise, hypothesis, wanted)
            return [pair, _spell(*neutral, grammar.NEUTRAL)] if rng.random() < 0.5 else [pair]


def _spell(premise: Sentence, hypothesis: Sentence, label: int) -> Pair:
    return Pair(str(premise), str(hypothesis), label)


def sample_combinations(rng: random.Random, combinations: int = 8) -> list[frozenset[str]]:
    """Choose pairs of words of different kinds that only the split `unseen` puts together."""
    kinds = ((NOUNS, VERBS), (NOUNS, grammar.ADJECTIVES), (VERBS, grammar.ADJECTIVES))
    pairs = [frozenset((one, other)) for ones, others in kinds for one in ones for other in others]
    return rng.sample(pairs, combinations)


def _share(size: int, label: int) -> int:
    return size // len(LABELS) + (label < size % len(LABELS))


def _generate_splits(rng: random.Random, sizes: list[int], fits: Fits) -> list[list[Pair]]:
    """Make splits of these sizes that share no pair and hold each label equally often, give or take one."""
    quotas = [sum(_share(size, label) for size in sizes) for label in range(len(LABELS))]
    pools: list[dict[Pair, None]] = [{} for _ in LABELS]  # dictionaries: sets that keep their order
    in_vain = 0
    while any(len(pool) < quota for pool, quota in zip(pools, quotas, strict=True)):
        before = sum(map(len, pools))
        for pair in _family(rng, fits):
            if len(pools[pair.label]) < quotas[pair.label]:
                pools[pair.label][pair] = None
        in_vain = in_vain + 1 if sum(map(len, pools)) == before else 0
        if in_vain > PATIENCE:
            found = f"{sum(sizes)} pairs asked for, {before} different ones found"
            raise InputError(f"sizes: {found}; ask for fewer")
    stacks = [rng.sample(list(pool), len(pool)) for pool in pools]
    splits = [[stacks[x].pop() for x in range(len(LABELS)) for _ in range(_share(size, x))] for size in sizes]
    for split in splits:
        rng.shuffle(split)
    return splits


def generate_pairs(config: LogicData) -> dict[str, list[Pair]]:
    """Generate the pairs of `train`, `dev` and `test`, of one distribution, and of `unseen`, in random order.

    Each label makes up a third of each split, and no pair occurs twice. A few combinations of two words (a
    noun and a verb, say) occur in `unseen` only: each of its pairs has a sentence with such a combination,
    and no other pair holds both words at all.

    Raises:
        InputError: A size is negative, or more pairs are asked for than the generator finds.
    """
    sizes = {name: getattr(config, name) for name in ("train", "dev", "test", "unseen")}
    for name, size in sizes.items():
        if size < 0:
            raise InputError(f"{name}: a number of pairs cannot be negative, got {size}")
    rng = random.Random(config.seed)
    combinations = sample_combinations(rng)

    def familiar(draft: Draft) -> bool:
        words = {word for sentence in draft for word in sentence.list_words()}
        return not any(combination <= words for combination in combinations)

    def unfamiliar(draft: Draft) -> bool:
        return any(combination.issubset(s.list_words()) for s in draft for combination in combinations)

    *known, unseen = sizes.values()
    splits = _generate_splits(rng, known, familiar) + _generate_splits(rng, [unseen], unfamiliar)
    return dict(zip(sizes, splits, strict=True))


def read(config: LogicData) -> dict[str, Rows]:
    """Generate the rows of each split."""
    rows = {}
    for split, pairs in generate_pairs(config).items():
        texts = {name: [getattr(pair, name) for pair in pairs] for name in ("premise", "hypothesis")}
        rows[split] = Rows(texts, [pair.label for pair in pairs], len(pairs), tokenized=True)
    return rows


def compute_fingerprint(rows: Mapping[str, Rows]) -> str:
    """Compute what tells a corpus from any other."""
    digest = hashlib.sha256()
    for split, each in rows.items():
        for row in zip(*each.texts.values(), each.labels, strict=True):
            digest.update(("\t".join([split, *map(str, row)]) + "\n").encode())
    return digest.hexdigest()
