"""Make the folder in which the commands of the documents run: data, word vectors, files, results."""

import shutil
import sys
from pathlib import Path

import numpy as np

from data.made_up import make_snli_line, save_vectors, write_files, write_snli, write_sst, write_wikiqa
from data.test_aclimdb import write_reviews as write_aclimdb
from data.test_parallel import write_published as write_iwslt14
from nse.data.readers import wikiqa
from nse.data.readers.parallel import MULTI30K
from nse.metrics import trec
from tasks import test_answers, test_sentences, test_translation
from tasks.test_own import candidates, table
from tasks.test_own import pairs as alike

ROOT = Path(__file__).parents[1]

PAIRS = [
    ("Two dogs play in the snow.", "The animals are outdoors.", "entailment"),
    ("A man plays a guitar.", "Nobody makes music.", "contradiction"),
    ("A woman reads a book.", "She sits at home.", "neutral"),
]
REVIEWS = ["A film that makes you think.", "Two hours too long, and not funny for a minute."]
CAPTIONS = ["A dog runs across the snow.", "Two men talk on a bench."]
CANDIDATES = ["A man did.", "In 1791.", "Mozart wrote it."]
FRENCH = [("Here is the room.", "Voici la chambre."), ("Here is the bar.", "Voici le bar.")]

PEER = """
import json, sys
print(json.dumps({"sentence-transformers": "made up"}), flush=True)
for _ in sys.stdin:
    print(json.dumps({"seconds": 1.0}), flush=True)
"""

RUNS = {
    "docs/models.md": ["wikiqa/mma-attention", "aclimdb/nse-lstm"],
}
"""Recipes that other documents train, by the documents that read their results."""


def write_folder(folder):
    """Write everything but runs into a new folder."""
    write_data(folder / "DATA")
    write_files_of_reader(folder)
    write_peer(folder / "peer" / "bin" / "python")
    shutil.copytree(ROOT / "docs" / "results", folder / "docs" / "results")


def write_data(folder):
    """Write data sets and vectors, in the form that `nse data fetch` downloads."""
    (folder / "sst").mkdir(parents=True)
    pairs = b"".join(make_snli_line(label, *texts) for *texts, label in PAIRS * 4)
    write_snli(folder, "zip", train=pairs, dev=pairs, test=pairs)
    splits = {"train": 1, "dev": 2, "test": 3}
    write_sst(folder / "sst", "zip", **{split: test_sentences.trees(12, n) for split, n in splits.items()})
    write_wikiqa(folder, "zip", **{split: test_answers.corpus(8, n) for split, n in splits.items()})
    test = wikiqa.read(folder)["test"]
    (folder / "WikiQACorpus").mkdir()
    trec.write_trec(folder / "right", [0] * len(test.labels), test.groups, test.labels)
    (folder / "right.qrels").rename(folder / "WikiQACorpus" / "WikiQA-test.ref")
    (folder / "right.run").unlink()
    write_aclimdb(folder, "one")
    translations = {split: list(test_translation.pairs(20, n)) for n, split in enumerate(MULTI30K)}
    test_translation.write_multi30k(folder, **translations)
    write_iwslt14(folder)
    write_all_vectors(folder)


def write_all_vectors(folder):
    """Write random vectors under the names of real ones, for some words of all data sets."""
    words = {"A", "The", "Two", "dogs", "play", "man", "music", "dev", "good", "liked"}
    words |= {*test_answers.KNOWN, *test_sentences.KNOWN, *test_translation.MEANS}
    known = sorted(words)
    rows = np.random.default_rng(0).normal(size=(len(known), 300)).round(3)
    save_vectors(folder, "spacy.md.300d", known, rows.astype(np.float32))
    save_vectors(folder, "glove.6B.100d", known, rows[:, :100].astype(np.float32))
    lines = [" ".join([word, *map(str, row)]) for word, row in zip(known, rows.tolist(), strict=True)]
    text = "".join(f"{line}\n" for line in lines).encode()
    shorter = "".join(" ".join(line.split()[:101]) + "\n" for line in lines).encode()
    write_files(folder / "vectors", "zip", {"glove.840B.300d.txt": text}, "glove.840B.300d.zip")
    write_files(folder / "vectors", "zip", {"glove.6B.100d.txt": shorter}, "glove.6B.zip")


def write_files_of_reader(folder):
    """Write the files that the documents name."""

    def write_table(name, header, rows):
        table(folder / name, header, rows)

    english = [CAPTIONS[0], "", CAPTIONS[1]]
    texts = {"reviews.txt": REVIEWS, "english.txt": english, "sentences.txt": CANDIDATES}
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{text}\n" for text in lines), "utf-8")
    write_table("pairs.jsonl", ["premise", "hypothesis"], [texts for *texts, _ in PAIRS])
    write_table("captions.jsonl", ["text"], [[caption] for caption in CAPTIONS])
    write_table("questions.jsonl", ["question", "candidates"], [["who wrote it ?", CANDIDATES]])
    write_table("documents.tsv", ["document"], [["I liked it. See it twice."], ["Bad."]])
    write_table(
        "dev.tsv", ["pairID", "sentence1", "sentence2"], [[f"{n}r1n", *PAIRS[n][:2]] for n in range(3)]
    )
    write_table("more.csv", ["comment", "tone"], [["The tea was not bad.", "praise"], ["A bar ?", "blame"]])
    write_table("new.csv", ["comment"], [["The tea was not bad."]])
    for seed, split in enumerate(("train", "dev", "test")):
        write_table(f"{split}.jsonl", ["sentence1", "sentence2", "gold_label"], alike(40, seed))
    answers = [(n // 3, *row) for n, row in enumerate(candidates(20, 1))]
    write_table("qa.tsv", ["QuestionID", "Question", "Sentence", "Label"], answers)
    write_table("en-fr.tsv", ["en", "fr"], FRENCH * 20)


def write_peer(file):
    """Write a Python program that answers `benchmarks/answers.py` as it expects."""
    file.parent.mkdir(parents=True)
    file.write_text(f"#!{sys.executable}\n{PEER}")
    file.chmod(0o755)
