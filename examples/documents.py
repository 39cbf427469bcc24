"""Documents (section 4.4): one NSE over the words of each sentence, another NSE over the sentences.

A plain PyTorch loop over the model as a module. The documents are made of the built-in corpus: a few
sentences each, and the question is whether most of them begin with a denial, as "no dogs bark" does.
"""

import random

import torch
from torch.nn import functional as F

from nse.data.readers.logic import LogicData, generate_pairs
from nse.nn.document import DocumentClassifier, DocumentConfig
from nse.text.tensors import Documents, Texts
from nse.text.vocabulary import Vocabulary

chance = random.Random(0)
torch.manual_seed(0)
sentences = [
    pair.premise.split() for pair in generate_pairs(LogicData(train=600, dev=3, test=3, unseen=3))["train"]
]
vocabulary = Vocabulary(sorted({word for sentence in sentences for word in sentence}))


def document():
    """Three or five sentences, and whether most begin with no or not."""
    found = chance.sample(sentences, chance.choice([3, 5]))
    return found, sum(each[0] in ("no", "not") for each in found) > len(found) / 2


def batch(size):
    """Documents as the model takes them, and their labels."""
    made = [document() for _ in range(size)]
    texts = Texts.from_words([sentence for found, _ in made for sentence in found], vocabulary)
    counts = torch.tensor([len(found) for found, _ in made])
    rows = Documents.from_sentences(texts, counts).select(torch.arange(size))
    return rows, torch.tensor([int(denies) for _, denies in made])


model = DocumentClassifier(DocumentConfig(size=24), len(vocabulary), labels=2)
adam = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(1, 61):
    inputs, labels = batch(32)
    loss = F.cross_entropy(model(*inputs), labels)
    adam.zero_grad()
    loss.backward()
    adam.step()
    if step % 20 == 0:
        print(f"step {step}: loss {float(loss.detach()):.3f}")

with torch.no_grad():
    inputs, labels = batch(200)
    right = (model(*inputs).argmax(dim=-1) == labels).float().mean()
print(f"{right:.0%} of 200 new documents are told right; {float(labels.float().mean()):.0%} of them deny")
