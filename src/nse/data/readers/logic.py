"""Generate the built-in inference corpus: random sentence pairs with exact labels.

`logic_grammar` defines the sentences and labels a pair. A pair is drawn as a random premise, a hypothesis
a few edits away, and quantifiers that give the wanted label.

Word counts cannot solve the corpus, because the words of most pairs also make a pair with another label:
`all dogs that bark do not dance` contradicts `some dogs that dance bark`, but `all dogs that do not bark
dance` does not.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations, product

from nse.data.readers import logic_grammar as grammar
from nse.data.readers.logic_grammar import LABELS, NOUNS, QUANTIFIERS, VERBS, Property, Sentence, label
from nse.data.sources import Rows
from nse.errors import InputError

NAME = "logic"  # of the data set
PLAIN = 0.1  # fraction of draws without a reordering that has another label, so that short sentences occur
MAX_FAILURES = 10_000  # draws in a row without a new pair, after which generation stops
PLACEHOLDER = "all"  # until a quantifier is chosen


@dataclass(frozen=True)
class Pair:
    """Premise, hypothesis and label."""

    premise: str  # lower-case words separated by single spaces
    hypothesis: str  # of the same form
    label: int  # index in `LABELS`


@dataclass
class LogicData:
    """Sizes of the generated splits, in pairs, and their seed."""

    train: int = 30_000
    """Pairs to train on. Far above the default, word counts alone predict more labels."""
    dev: int = 1_000
    """Pairs to choose the best epoch on."""
    test: int = 3_000
    """Test pairs, none of them among the training pairs."""
    unseen: int = 2_000
    """Test pairs with combinations of words that no other split has."""
    seed: int = 0
    """Seed of the generator. The corpus depends on it and on the sizes, not on the machine."""


SentencePair = tuple[Sentence, Sentence]
Filter = Callable[[SentencePair], bool]


def _is_meaningful(s: Sentence) -> bool:
    """Return whether a sentence repeats no word, and its subject does not already decide its predicate."""
    words, (pos, neg, _) = s.list_words(), s.compute_roles()
    return len(set(words)) == len(words) and bool(pos) and bool(neg)


_PROPERTIES = [Property(word, negated) for word in [*VERBS, *grammar.ADJECTIVES] for negated in (False, True)]


@cache
def _list_sentences(adjective: bool, clause: bool) -> list[Sentence]:
    """List every meaningful sentence with or without an adjective and a clause, without its quantifier."""
    adjectives = list(grammar.ADJECTIVES) if adjective else [None]
    clauses = _PROPERTIES if clause else [None]
    combinations = product([PLACEHOLDER], NOUNS, _PROPERTIES, adjectives, clauses)
    return [sentence for parts in combinations if _is_meaningful(sentence := Sentence(*parts))]


def _list_related(word: str) -> list[str]:
    """List the parent, children and siblings of a word in its tree."""
    tree = next(tree for tree in (NOUNS, VERBS, grammar.ADJECTIVES) if word in tree)
    parent = tree[word]
    return [other for other in tree if other != word and (other == parent or tree[other] in (word, parent))]


@cache
def _list_edits(s: Sentence) -> list[list[Sentence]]:
    """Edit a sentence once in every way; return a list for each kind of edit that applies."""
    kinds = [
        [replace(s, noun=noun) for noun in _list_related(s.noun)],
        [replace(s, predicate=replace(s.predicate, word=word)) for word in _list_related(s.predicate.word)],
        [replace(s, predicate=s.predicate.negate())],
        [replace(s, adjective=adjective) for adjective in ([None] if s.adjective else grammar.ADJECTIVES)],
        [replace(s, clause=clause) for clause in ([None] if s.clause else _PROPERTIES)],
    ]
    if s.clause:
        kinds += [
            [replace(s, clause=replace(s.clause, word=word)) for word in _list_related(s.clause.word)],
            [replace(s, clause=s.clause.negate())],
            [replace(s, clause=s.predicate, predicate=s.clause)],
        ]
    elif s.adjective:
        kinds.append([replace(s, adjective=None, clause=Property(s.adjective))])
    meaningful = [[edit for edit in kind if _is_meaningful(edit)] for kind in kinds]
    return [kind for kind in meaningful if kind]


@cache
def _list_reorderings(s: Sentence) -> list[Sentence]:
    """List every meaningful sentence with the same words, the sentence itself included."""
    *words, noun = s.list_words()
    bag = sorted(str(s).split())
    sentences = []
    for predicate, *others in permutations(words):
        clause = others.pop(0) if s.clause else None
        adjective = others.pop() if others else None
        for not_predicate, not_clause in product((False, True), repeat=2):
            inner = Property(clause, not_clause) if clause else None
            candidate = Sentence(s.quantifier, noun, Property(predicate, not_predicate), adjective, inner)
            if sorted(str(candidate).split()) == bag and _is_meaningful(candidate):
                sentences.append(candidate)
    return list(dict.fromkeys(sentences))


def _draw_with_label(rng: random.Random, accept: Filter, label: int, clause: bool) -> SentencePair:
    """Draw a pair with a label; each quantifier is equally frequent in the hypothesis."""
    quantifier = rng.choice(list(QUANTIFIERS))  # of the hypothesis
    while True:
        premise = hypothesis = rng.choice(_list_sentences(rng.random() < 0.35, clause))
        for _ in range(rng.choice((0, 1, 1, 2))):
            hypothesis = rng.choice(rng.choice(_list_edits(hypothesis)))
        if not accept((premise, hypothesis)):
            continue
        cells = grammar.list_cells(premise, hypothesis)
        choices = [q for q in QUANTIFIERS if grammar.find_label(cells, q, quantifier) == label]
        if premise == hypothesis and quantifier in choices:
            choices.remove(quantifier)
        if choices:
            premise = replace(premise, quantifier=rng.choice(choices))
            return premise, replace(hypothesis, quantifier=quantifier)


def _draw_pairs(rng: random.Random, accept: Filter) -> list[Pair]:
    """Draw one pair, or two with the same words and different labels.

    The second label is neutral: hardly any words make both an entailment and a contradiction. It is added in
    half of the cases, which makes the three labels equally frequent.
    """
    if rng.random() < PLAIN:
        wanted = rng.randrange(3)
        premise, hypothesis = _draw_with_label(rng, accept, wanted, clause=rng.random() < 0.5)
        return [Pair(str(premise), str(hypothesis), wanted)]
    while True:
        wanted = rng.choice((grammar.ENTAILMENT, grammar.CONTRADICTION))
        premise, hypothesis = _draw_with_label(rng, accept, wanted, clause=True)
        candidates = list(product(_list_reorderings(premise), _list_reorderings(hypothesis)))
        rng.shuffle(candidates)
        if neutral := next((c for c in candidates if label(*c) == grammar.NEUTRAL), None):
            pairs = [Pair(str(premise), str(hypothesis), wanted)]
            if rng.random() < 0.5:
                pairs.append(Pair(str(neutral[0]), str(neutral[1]), grammar.NEUTRAL))
            return pairs


def sample_combinations(rng: random.Random, combinations: int = 8) -> list[frozenset[str]]:
    """Sample pairs of words of different kinds that only the split `unseen` combines."""
    kinds = ((NOUNS, VERBS), (NOUNS, grammar.ADJECTIVES), (VERBS, grammar.ADJECTIVES))
    pairs = [frozenset((one, other)) for ones, others in kinds for one in ones for other in others]
    return rng.sample(pairs, combinations)


def _count_label(size: int, label: int) -> int:
    """Return how many of `size` pairs have a label."""
    return size // len(LABELS) + (label < size % len(LABELS))


def _generate_splits(rng: random.Random, sizes: list[int], accept: Filter) -> list[list[Pair]]:
    """Generate splits of these sizes that share no pair, with equally frequent labels, give or take one."""
    quotas = [sum(_count_label(size, label) for size in sizes) for label in range(len(LABELS))]
    pools: list[dict[Pair, None]] = [{} for _ in LABELS]  # dictionaries: ordered sets
    failures = 0
    while any(len(pool) < quota for pool, quota in zip(pools, quotas, strict=True)):
        before = sum(map(len, pools))
        for pair in _draw_pairs(rng, accept):
            if len(pools[pair.label]) < quotas[pair.label]:
                pools[pair.label][pair] = None
        failures = failures + 1 if sum(map(len, pools)) == before else 0
        if failures > MAX_FAILURES:
            got = f"expected at most {before} pairs, got {sum(sizes)}"
            raise InputError(f"sizes: {got}; ask for fewer")
    stacks = [rng.sample(list(pool), len(pool)) for pool in pools]
    splits = []
    for size in sizes:
        split = [stack.pop() for x, stack in enumerate(stacks) for _ in range(_count_label(size, x))]
        rng.shuffle(split)
        splits.append(split)
    return splits


def generate_pairs(config: LogicData) -> dict[str, list[Pair]]:
    """Generate the pairs of `train`, `dev` and `test`, of one distribution, and of `unseen`, in random order.

    Each label makes up a third of each split, and no pair occurs twice. A few combinations of two words, such
    as a noun and a verb, occur in `unseen` only: each of its pairs has a sentence with such a combination,
    and no pair of another split holds both words.

    Raises:
        InputError: If a size is negative or larger than the number of different pairs.
    """
    sizes = {name: getattr(config, name) for name in ("train", "dev", "test", "unseen")}
    for name, size in sizes.items():
        if size < 0:
            raise InputError(f"{name}: expected 0 or more pairs, got {size}")
    rng = random.Random(config.seed)
    combinations = sample_combinations(rng)

    def is_familiar(pair: SentencePair) -> bool:
        words = {word for sentence in pair for word in sentence.list_words()}
        return not any(combination <= words for combination in combinations)

    def is_unseen(pair: SentencePair) -> bool:
        return any(combination.issubset(s.list_words()) for s in pair for combination in combinations)

    *known, unseen = sizes.values()
    splits = _generate_splits(rng, known, is_familiar) + _generate_splits(rng, [unseen], is_unseen)
    return dict(zip(sizes, splits, strict=True))


def read(config: LogicData) -> dict[str, Rows]:
    """Generate the rows of each split."""
    rows = {}
    for split, pairs in generate_pairs(config).items():
        texts = {name: [getattr(pair, name) for pair in pairs] for name in ("premise", "hypothesis")}
        rows[split] = Rows(texts, [pair.label for pair in pairs], len(pairs), tokenized=True)
    return rows


def compute_fingerprint(rows: Mapping[str, Rows]) -> str:
    """Hash the rows of a corpus."""
    digest = hashlib.sha256()
    for split, (texts, labels, *_) in rows.items():
        for row in zip(*texts.values(), labels, strict=True):
            digest.update(("\t".join([split, *map(str, row)]) + "\n").encode())
    return digest.hexdigest()
