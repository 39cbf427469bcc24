"""Documents (section 4.4): one NSE over the words of each sentence, another NSE over the sentences.

A plain PyTorch training loop. The documents are sentences of the built-in corpus; the label is whether most
of them begin with a negation, such as "no dogs bark".
"""

import random

import torch
from torch.nn import functional as F

from nse.data.readers.logic import LogicData, generate_pairs
from nse.nn.document import DocumentClassifier, DocumentConfig
from nse.text.tensors import Documents, Texts
from nse.text.vocabulary import Vocabulary

generator = random.Random(0)
torch.manual_seed(0)
sentences = [
    pair.premise.split() for pair in generate_pairs(LogicData(train=600, dev=3, test=3, unseen=3))["train"]
]
vocabulary = Vocabulary(sorted({word for sentence in sentences for word in sentence}))


def make_document():
    """Draw three or five sentences; return them, and whether most begin with a negation."""
    document = generator.sample(sentences, generator.choice([3, 5]))
    return document, sum(words[0] in ("no", "not") for words in document) > len(document) / 2


def make_batch(size):
    """Return documents as the model takes them, and their labels."""
    pairs = [make_document() for _ in range(size)]
    texts = Texts.from_words([words for document, _ in pairs for words in document], vocabulary)
    counts = torch.tensor([len(document) for document, _ in pairs])
    rows = Documents.from_sentences(texts, counts).select(torch.arange(size))
    return rows, torch.tensor([int(is_negative) for _, is_negative in pairs])


model = DocumentClassifier(DocumentConfig(size=24), len(vocabulary), labels=2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(1, 61):
    inputs, labels = make_batch(32)
    loss = F.cross_entropy(model(*inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step}: loss {float(loss.detach()):.3f}")

with torch.no_grad():
    inputs, labels = make_batch(200)
    accuracy = (model(*inputs).argmax(dim=-1) == labels).float().mean()
print(f"accuracy on 200 new documents: {accuracy:.0%}; {float(labels.float().mean()):.0%} are negative")
