import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from itertools import combinations_with_replacement, product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import nse
from nse.data.readers import logic, logic_grammar
from nse.data.readers.logic import LogicData, Pair, generate_pairs, sample_combinations
from nse.data.readers.logic_grammar import LABELS, Property, Sentence, label, parse
from nse.errors import InputError

SMALL = LogicData(train=1800, dev=200, test=301, unseen=200, seed=3)
GOLDEN = "5a3d5f298a2bae0d77b3dd9c443e0501b8438f977f39ab5535b94f6cc2a0b972"

properties = st.builds(
    Property, st.sampled_from([*logic_grammar.VERBS, *logic_grammar.ADJECTIVES]), st.booleans()
)
sentences = st.builds(
    Sentence,
    st.sampled_from(list(logic_grammar.QUANTIFIERS)),
    st.sampled_from(list(logic_grammar.NOUNS)),
    properties,
    st.none() | st.sampled_from(list(logic_grammar.ADJECTIVES)),
    st.none() | properties,
)


@pytest.fixture(scope="module")
def small() -> dict[str, list[Pair]]:
    return generate_pairs(SMALL)


def name(premise: str, hypothesis: str) -> str | None:
    number = label(parse(premise), parse(hypothesis))
    return None if number is None else LABELS[number]


# ---- an independent judge: it reads the words itself and looks at explicit universes ----

ABOVE = {
    "dogs": {"animals"},
    "cats": {"animals"},
    "poodles": {"dogs", "animals"},
    "beagles": {"dogs", "animals"},
    "dance": {"move"},
    "run": {"move"},
    "waltz": {"dance", "move"},
}
# The package leaves open whether siblings overlap, because no label depends on it. Here they do not.
DISJOINT = [
    {"dogs", "cats"},
    {"poodles", "cats"},
    {"beagles", "cats"},
    {"poodles", "beagles"},
]


def read(text: str) -> tuple[str, list[tuple[str, bool]]]:
    """The quantifier, and each content word with whether it is affirmed; the predicate comes last."""
    words = text.split()
    quantifier = " ".join(words[:2]) if words[0] == "not" else words[0]
    conditions, affirmed = [], True
    for word in words[len(quantifier.split()) :]:
        if word == "not":
            affirmed = False
        elif word not in ("do", "are", "that"):
            conditions.append((word, affirmed))
            affirmed = True
    return quantifier, conditions


def individuals(words: list[str]) -> list[set[str]]:
    """Everything that can be true of somebody, as far as these words go."""
    kinds = [
        {w for w, true in zip(words, row, strict=True) if true} for row in product((0, 1), repeat=len(words))
    ]
    return [
        kind
        for kind in kinds
        if all(ABOVE.get(word, set()) & set(words) <= kind for word in kind)
        and not any(pair <= kind for pair in DISJOINT)
    ]


def role(conditions: list[tuple[str, bool]], individual: set[str]) -> bool | None:
    *subject, predicate = [(word in individual) == affirmed for word, affirmed in conditions]
    return predicate if all(subject) else None


def true(quantifier: str, roles: list[bool | None]) -> bool:
    subjects = [satisfied for satisfied in roles if satisfied is not None]
    if not subjects:
        return False
    return {
        "all": all(subjects),
        "some": any(subjects),
        "no": not any(subjects),
        "not all": not all(subjects),
        "most": sum(subjects) * 2 > len(subjects),
    }[quantifier]


def judge(premise: str, hypothesis: str, size: int = 4) -> int | None:
    (here, conditions), (there, questions) = read(premise), read(hypothesis)
    words = sorted({word for word, _ in conditions + questions})
    # Individuals of whom both sentences say the same are interchangeable.
    kinds = {(role(conditions, who), role(questions, who)) for who in individuals(words)} - {(None, None)}
    seen = set()
    for count in range(size + 1):
        for universe in combinations_with_replacement(kinds, count):
            seen.add((true(here, [p for p, _ in universe]), true(there, [h for _, h in universe])))
    if not any(p for p, _ in seen) or not any(h for _, h in seen):
        return None
    answers = {h for p, h in seen if p}
    return 2 if len(answers) == 2 else 0 if answers == {True} else 1


def test_corpus_labels_agree_with_explicit_universes(small):
    sample = random.Random(0).sample([pair for split in small.values() for pair in split], 400)
    for pair in sample:
        assert judge(pair.premise, pair.hypothesis) == pair.label, pair


@settings(max_examples=1000)
@given(sentences, sentences, st.booleans())
def test_any_label_agrees_with_explicit_universes(premise, hypothesis, related):
    if related:  # independent sentences are almost always neutral
        hypothesis = Sentence(
            hypothesis.quantifier, hypothesis.noun, premise.predicate, clause=premise.clause
        )
    assert label(premise, hypothesis) == judge(str(premise), str(hypothesis))


@pytest.mark.parametrize(
    ("premise", "hypothesis", "expected"),
    [
        ("all dogs bark", "some dogs bark", "entailment"),
        ("all dogs bark", "most dogs bark", "entailment"),
        ("most dogs bark", "some animals bark", "entailment"),
        ("some poodles waltz", "some animals dance", "entailment"),
        ("no dogs move", "all dogs do not waltz", "entailment"),
        ("some old dogs bark", "some dogs that bark are old", "entailment"),
        ("all cats that dance do not waltz", "no cats waltz", "entailment"),
        ("all animals that dance do not waltz", "some animals waltz", "contradiction"),
        ("all dogs bark", "not all dogs bark", "contradiction"),
        ("most dogs bark", "most dogs do not bark", "contradiction"),
        ("most dogs dance", "no animals move", "contradiction"),
        ("all dogs that bark do not dance", "some dogs that dance bark", "contradiction"),
        ("all dogs that do not bark dance", "some dogs that dance bark", "neutral"),
        ("all dogs bark", "all animals bark", "neutral"),
        ("some dogs bark", "some cats bark", "neutral"),
        ("most dogs bark", "not all dogs bark", "neutral"),
        ("most dogs bark", "most poodles bark", "neutral"),
        # Existential import: there need not be any poodles, but a sentence about them says there are.
        ("all dogs bark", "all poodles bark", "neutral"),
        ("no dogs bark", "some dogs do not bark", "entailment"),
        ("no dogs move", "no dogs that move are old", "contradiction"),
        # What can never be true has no label.
        ("some dogs that waltz do not move", "some dogs bark", None),
        ("some dogs bark", "some dogs that waltz do not move", None),
    ],
)
def test_labels_match_hand_worked_pairs(premise, hypothesis, expected):
    assert name(premise, hypothesis) == expected


@pytest.mark.parametrize("more", [1, 2])
def test_more_individuals_change_no_label(more):
    individuals = logic_grammar.INDIVIDUALS + more
    for cells in product((False, True), repeat=8):
        for here, there in product(logic_grammar.QUANTIFIERS, repeat=2):
            expected = logic_grammar.find_label(cells, here, there, individuals)
            assert logic_grammar.find_label(cells, here, there) == expected


def test_one_individual_would_not_be_enough():
    cells = logic_grammar.list_cells(parse("most dogs bark"), parse("not all dogs bark"))
    assert logic_grammar.find_label(cells, "most", "not all", 1) == logic_grammar.CONTRADICTION
    assert logic_grammar.find_label(cells, "most", "not all") == logic_grammar.NEUTRAL


@given(sentences)
def test_a_parsed_sentence_gives_its_text_back(sentence):
    assert parse(str(sentence)) == sentence
    assert str(sentence) == " ".join(str(sentence).lower().split())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("every dogs bark", "'every' (word 1): expected a quantifier"),
        ("not some dogs bark", "'some' (word 2)"),
        ("all unicorns bark", "'unicorns' (word 2): expected a noun or an adjective"),
        ("all small old dogs bark", "'old' (word 3): expected a noun"),
        ("all dogs do bark", "'bark' (word 4): expected the negation"),
        ("all dogs are bark", "'bark' (word 4): expected an adjective"),
        ("all dogs do not old", "'old' (word 5): expected a verb"),
        ("all dogs that bark", "the end: expected a verb"),
        ("all dogs bark loudly", "'loudly' (word 4): expected nothing more"),
        ("", "the end: expected a quantifier"),
    ],
)
def test_a_parse_error_names_the_word(text, complaint):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert complaint in str(caught.value)


def test_splits_have_the_given_sizes_and_balanced_labels(small):
    for split, pairs in small.items():
        assert len(pairs) == getattr(SMALL, split)
        counts = Counter(pair.label for pair in pairs)
        assert max(counts.values()) - min(counts.values()) <= 1
        # A split is shuffled: no third of it holds one label alone.
        assert len({pair.label for pair in pairs[: len(pairs) // 4]}) == 3


def test_no_pair_occurs_twice(small):
    texts = [(pair.premise, pair.hypothesis) for split in small.values() for pair in split]
    assert len(texts) == len(set(texts))
    assert all(premise != hypothesis for premise, hypothesis in texts)


def test_held_out_combinations_are_in_unseen_only(small):
    combinations = sample_combinations(random.Random(SMALL.seed))
    assert len(set(combinations)) == 8
    for split in ("train", "dev", "test"):
        for pair in small[split]:
            words = {*pair.premise.split(), *pair.hypothesis.split()}
            assert not any(combination <= words for combination in combinations), pair
    for pair in small["unseen"]:
        texts = (set(pair.premise.split()), set(pair.hypothesis.split()))
        assert any(combination <= words for combination in combinations for words in texts), pair


def test_every_word_is_in_train_and_every_phenomenon_in_each_split(small):
    every = {word for text in (*logic_grammar.IMPLIES, *logic_grammar.QUANTIFIERS) for word in text.split()}
    for split in ("train", "test", "unseen"):
        words = {
            word for pair in small[split] for text in (pair.premise, pair.hypothesis) for word in text.split()
        }
        assert words == every | {"do", "are", "that"}


def digest(config: LogicData) -> str:
    return hashlib.sha256(repr(list(generate_pairs(config).items())).encode()).hexdigest()


def test_the_same_seed_gives_the_same_corpus():
    config = LogicData(train=90, dev=9, test=9, unseen=9, seed=7)
    program = (
        "import hashlib; from nse.data.readers.logic import LogicData, generate_pairs;"
        f"print(hashlib.sha256(repr(list(generate_pairs({config!r}).items())).encode()).hexdigest())"
    )
    digests = {digest(config)}
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": str(Path(nse.__file__).parents[1]),
        }
        command = [sys.executable, "-c", program]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.add(run.stdout.strip())
    assert digests == {GOLDEN}
    assert digest(LogicData(train=90, dev=9, test=9, unseen=9, seed=8)) != GOLDEN


def test_impossible_sizes_raise_an_error(monkeypatch):
    with pytest.raises(InputError, match=r"dev: .* -1"):
        generate_pairs(LogicData(dev=-1))
    monkeypatch.setattr(logic, "MAX_FAILURES", 0)
    with pytest.raises(InputError, match="ask for fewer"):
        generate_pairs(LogicData())


class BagOfWords(nn.Module):
    def __init__(self, words: int, dim: int = 64) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(words, dim, mode="mean", padding_idx=0)
        self.head = nn.Sequential(nn.Linear(4 * dim, 256), nn.ReLU(), nn.Linear(256, 3))

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        p, h = self.embed(pairs[:, 0]), self.embed(pairs[:, 1])
        return self.head(torch.cat([p, h, p - h, p * h], dim=1))


def test_counts_of_words_do_not_predict_the_labels():
    splits = generate_pairs(LogicData(train=9000, dev=0, test=1500, unseen=0))
    ids: dict[str, int] = {}

    def tensors(pairs: list[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
        texts = [[pair.premise.split(), pair.hypothesis.split()] for pair in pairs]
        rows = [
            [[ids.setdefault(w, len(ids) + 1) for w in t] + [0] * (12 - len(t)) for t in two] for two in texts
        ]
        return torch.tensor(rows), torch.tensor([pair.label for pair in pairs])

    (inputs, labels), (test_inputs, test_labels) = tensors(splits["train"]), tensors(splits["test"])
    torch.manual_seed(0)
    model = BagOfWords(len(ids) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(20):
        for batch in torch.randperm(len(inputs)).split(256):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (model(test_inputs).argmax(dim=1) == test_labels).float().mean().item()
    assert 0.5 < accuracy < 0.7
