"""Answer selection (section 4.2): train a ranker on your own questions, then rank candidates.

The questions are made from the built-in corpus: which of these sentences follow from the first?
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import nse
from nse.data.readers.logic import LogicData, generate_pairs
from nse.data.readers.logic_grammar import LABELS, label, parse

pairs = generate_pairs(LogicData(train=600, dev=3, test=3, unseen=3))["train"]


def make_rows(pairs):
    """Yield a row for each question and candidate: its own sentence, and those of the next four questions."""
    for number, pair in enumerate(pairs):
        for other in (pairs * 2)[number : number + 5]:
            follows = label(parse(pair.premise), parse(other.hypothesis)) == LABELS.index("entailment")
            yield {"question": pair.premise, "answer": other.hypothesis, "label": int(follows)}


folder = Path(tempfile.mkdtemp())
with (folder / "train.jsonl").open("w") as file:
    for row in make_rows([pair for pair in pairs if LABELS[pair.label] == "entailment"]):
        print(json.dumps(row), file=file)

command = ["train", "own/ranking", "--train", folder / "train.jsonl", "--out", folder / "run"]
settings = ["--set", "train.epochs=4", "--set", "model.size=32", "--set", "model.hidden=32"]
subprocess.run([sys.executable, "-m", "nse", *command, *settings], check=True)

model = nse.load(folder / "run")
question = "all poodles that are old bark"
print(f"\nWhat follows from: {question}")
for row in model.rank(question, ["some old poodles bark", "no cats dance", "some poodles that are old bark"]):
    print(f"  {row['rank']}. {row['score']:6.2f}  {row['text']}")
