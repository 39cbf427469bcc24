"""A small SNLI in the published format, and vectors for it."""

import gzip
import json
import lzma
import zipfile

import numpy as np


def line(label, premise, hypothesis):
    row = {"annotator_labels": ["neutral"], "gold_label": label, "pairID": "1.jpg#0r1n"}
    return json.dumps(row | {"sentence1": premise, "sentence2": hypothesis}).encode() + b"\n"


SNLI = {
    "train": line("entailment", "A dog runs, fast.", "A dog moves.")
    + line("-", "dropped words", "dropped too")
    + line("contradiction", "The cat sleeps.", "N/A")
    + line("neutral", "A dog\u2028runs.", ""),
    "dev": line("neutral", "Two dogs", "dogs"),
    "test": line("contradiction", "A cat", "a dog") + line("entailment", "Café", "zebra zebra"),
}

WORDS = ["A", "a", "dog", "cat", "runs", ".", "moves", "The", "<unk>"]


def write_snli(folder, form="plain", **changed):
    """Lay SNLI out in one of the published forms; `changed` replaces splits."""
    splits = SNLI | changed
    if form == "zip":
        with zipfile.ZipFile(folder / "snli_1.0.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for split, content in splits.items():
                archive.writestr(f"__MACOSX/snli_1.0/._snli_1.0_{split}.jsonl", b"\x00")
                archive.writestr(f"snli_1.0/snli_1.0_{split}.jsonl", content)
        return
    suffix, packed = {"plain": ("", bytes), "gz": (".gz", gzip.compress), "xz": (".xz", lzma.compress)}[form]
    (folder / "snli_1.0").mkdir(exist_ok=True)
    for split, content in splits.items():
        (folder / "snli_1.0" / f"snli_1.0_{split}.jsonl{suffix}").write_bytes(packed(content))


def write_vectors(folder, scale=1.0):
    """Vectors of two numbers, called set.2d; the n-th word has n + 1 and -n - 1."""
    (folder / "vectors").mkdir(exist_ok=True)
    numbers = scale * np.arange(1, len(WORDS) + 1, dtype=np.float32)
    np.save(folder / "vectors" / "set.2d.npy", np.stack([numbers, -numbers], axis=1))
    (folder / "vectors" / "set.2d.words.txt").write_text("".join(f"{word}\n" for word in WORDS), "utf-8")
