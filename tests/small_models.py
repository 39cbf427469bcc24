"""Small models of each kind in a folder, with weights drawn at random."""

import torch
from torch.nn import functional as F

from nse.data.catalogue import describe_data
from nse.inference import folder as hub
from nse.nn.document import DocumentClassifier, DocumentConfig
from nse.nn.pair import PairClassifier, PairConfig
from nse.nn.search import Translations
from nse.nn.sentence import SentenceClassifier, SentenceConfig
from nse.nn.translator import TranslationConfig, Translator
from nse.text.vocabulary import TargetVocabulary, Vocabulary

WORDS = ["a", "dog", "runs", "the", "cat", "sleeps", ".", "?", "who", "good", "bad", "film"]
SENTENCES = ["A good film .", "bad", "The cat sleeps, the dog runs and runs.", "Zyx qwv", "a " * 70]
CANDIDATES = ["the cat sleeps .", "a dog runs .", "Zyx qwv", "runs", "the dog " * 40, "a dog runs ."]

SOURCE = ["a", "dog", "runs", "the", "cat", "sleeps", ".", ",", "good"]
TARGET = ["ein", "hund", "läuft", "die", "katze", "schläft", ".", ",", "gut"]


def save_sentence_model(folder, labels=("negative", "positive"), seed=0, **model):
    """Save a small sentence classifier."""
    config = hub.ModelConfig(
        kind="sentence",
        task="sst",
        labels=list(labels),
        tokenizer="treebank",
        data="sst-binary",
        model=SentenceConfig(**{"size": 6, "hidden": 4, **model}),
    )
    torch.manual_seed(seed)
    vocabulary = Vocabulary(WORDS)
    hub.save(folder, SentenceClassifier(config.model, len(vocabulary), len(labels)), config, vocabulary, {})
    return folder


def save_ranking_model(folder, seed=0, **model):
    """Save a small ranking model."""
    config = hub.ModelConfig(
        kind="ranking",
        task="wikiqa",
        labels=["right"],
        tokenizer="lower",
        data="wikiqa",
        model=PairConfig(**{"encoder": "mma", "attention": "paper", "size": 6, "hidden": 4, **model}),
    )
    torch.manual_seed(seed)
    vocabulary = Vocabulary(WORDS)
    hub.save(folder, PairClassifier(config.model, len(vocabulary), 1), config, vocabulary, {})
    return folder


def save_document_model(
    folder, labels=("1", "2", "3"), tokenizer="treebank", data="aclimdb", seed=0, **model
):
    """Save a small document classifier."""
    config = hub.ModelConfig(
        kind="document",
        task="documents",
        labels=list(labels),
        tokenizer=tokenizer,
        data=data,
        model=DocumentConfig(**{"size": 6, "init_range": 1.0, **model}),
    )
    torch.manual_seed(seed)
    vocabulary = Vocabulary(WORDS)
    built = DocumentClassifier(config.model, len(vocabulary), len(labels))
    hub.save(folder, built, config, vocabulary, describe_data(data))
    return folder


def save_translator(folder, seed=0, words=SOURCE, target=TARGET, pieces=False, task="translation", **model):
    """Save a small translator."""
    config = hub.ModelConfig(
        kind="translation",
        task=task,
        labels=[],
        tokenizer="moses-en",
        pieces=pieces,
        data="multi30k",
        model=TranslationConfig(**{"size": 6, "max_target_words": 7, "init_range": 1.0, **model}),
    )
    torch.manual_seed(seed)
    vocabulary, into = Vocabulary(words), TargetVocabulary(target)
    hub.save(folder, Translator(config.model, len(vocabulary), len(into)), config, vocabulary, {}, into)
    return folder


def translate_word_by_word(self, source, lengths, beam=None, max_length=None):
    """Replace `Translator.translate`: each word becomes its counterpart, and attends to it."""
    ids = torch.where(source > Vocabulary.UNKNOWN, source + 2, source)
    places, more = torch.arange(source.shape[1]).expand_as(ids), 100 - source.shape[1]  # of one width
    return Translations(F.pad(ids, (0, more)), F.pad(places, (0, more)), torch.zeros(len(ids)))
