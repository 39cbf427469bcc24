"""Small data sets in the published formats, and vectors for SNLI."""

import gzip
import json
import lzma
import zipfile

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from nse.data.cache import KEY


def make_snli_line(label, premise, hypothesis):
    row = {"annotator_labels": ["neutral"], "gold_label": label, "pairID": "1.jpg#0r1n"}
    return json.dumps(row | {"sentence1": premise, "sentence2": hypothesis}).encode() + b"\n"


SNLI = {
    "train": make_snli_line("entailment", "A dog runs, fast.", "A dog moves.")
    + make_snli_line("-", "dropped words", "dropped too")
    + make_snli_line("contradiction", "The cat sleeps.", "N/A")
    + make_snli_line("neutral", "A dog\u2028runs.", ""),
    "dev": make_snli_line("neutral", "Two dogs", "dogs"),
    "test": make_snli_line("contradiction", "A cat", "a dog")
    + make_snli_line("entailment", "Café", "zebra zebra"),
}

WORDS = ["A", "a", "dog", "cat", "runs", ".", "moves", "The", "<unk>"]


SST = {
    "train": b"(3 (2 It) (4 (2 's) (4 (3 -LRB-) (2 good))))\n(0 (1 Bad) (2 .))\n",
    "dev": "(2 (2 8\u00a01\\/2) (2 films))\n(4 (2 So) (3 good))\n".encode(),
    "test": b"(1 (1 Not) (4 good))\n",
}

HEADER = b"QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"


def make_wikiqa_line(question, answer, label, text="who runs ?"):
    """Make a line of WikiQA."""
    return f"{question}\t{text}\tD1\tDogs\tD1-0\t{answer}\t{label}\n".encode()


WIKIQA = {
    "train": HEADER
    + make_wikiqa_line("Q7", 'A "dog" runs .', 1)
    + make_wikiqa_line("Q7", "Cats sleep .", 0)
    + make_wikiqa_line("Q2", '"', 0, "WHO sleeps")
    + make_wikiqa_line("Q9", "Café", 1, "where"),
    "dev": HEADER + make_wikiqa_line("Q1", "", 0),
    "test": HEADER + make_wikiqa_line("Q3", "a dog", 0) + make_wikiqa_line("Q4", "a cat", 1),
}

PACKED = {"plain": ("", bytes), "gz": (".gz", gzip.compress), "xz": (".xz", lzma.compress)}


def write_snli(folder, form="plain", **changed):
    """Write SNLI in one of the published formats; `changed` replaces splits."""
    files = {f"snli_1.0/snli_1.0_{split}.jsonl": content for split, content in (SNLI | changed).items()}
    write_files(folder, form, files, "snli_1.0.zip")


def write_sst(folder, form="plain", **changed):
    """Write the Stanford Sentiment Treebank in one of the published formats."""
    files = {f"trees/{split}.txt": content for split, content in (SST | changed).items()}
    write_files(folder if form == "zip" else folder / "sst", form, files, "trainDevTestTrees_PTB.zip")


def write_wikiqa(folder, form="plain", **changed):
    """Write WikiQA in one of the published formats."""
    files = {f"WikiQACorpus/WikiQA-{split}.tsv": content for split, content in (WIKIQA | changed).items()}
    write_files(folder, form, files, "WikiQACorpus.zip")


def write_files(folder, form, files, archive):
    """Write files plain, compressed, or in a zip archive as a Mac makes them."""
    if form == "zip":
        with zipfile.ZipFile(folder / archive, "w", zipfile.ZIP_DEFLATED) as opened:
            for name, content in files.items():
                folder_name, _, last = name.rpartition("/")
                opened.writestr(f"__MACOSX/{folder_name}/._{last}", b"\x00")
                opened.writestr(f"__MACOSX/{name}", b"\x00")
                opened.writestr(name, content)
        return
    suffix, packed = PACKED[form]
    for name, content in files.items():
        file = folder / f"{name}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(packed(content))


def write_vectors(folder, scale=1.0):
    """Write vectors of two numbers, named set.2d; the n-th word has n + 1 and -n - 1."""
    numbers = scale * np.arange(1, len(WORDS) + 1, dtype=np.float32)
    save_vectors(folder, "set.2d", WORDS, np.stack([numbers, -numbers], axis=1))


def write_random_vectors(folder, words):
    """Write vectors of five random numbers for these words, named small.5d."""
    rows = np.random.default_rng(0).normal(size=(len(words), 5)).astype(np.float32)
    save_vectors(folder, "small.5d", words, rows)


def save_vectors(folder, name, words, rows):
    (folder / "vectors").mkdir(parents=True, exist_ok=True)
    np.save(folder / "vectors" / f"{name}.npy", rows)
    (folder / "vectors" / f"{name}.words.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")


def harm_file(file, harm):
    """Change tensors and information of a prepared file without updating its checksum."""
    with safe_open(file, framework="numpy") as opened:
        information = json.loads(opened.metadata()[KEY])
    tensors = {name: tensor.copy() for name, tensor in load_file(file).items()}
    harm(tensors, information)
    save_file(tensors, file, {KEY: json.dumps(information)})
