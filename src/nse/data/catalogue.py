"""Catalogue of published data sets and word vectors. A new data set is an entry here and a reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from nse.data.readers import aclimdb, parallel, snli, sst, tang, wikiqa
from nse.data.sources import SPLITS, DataFile, Rows
from nse.errors import DataError, suggest


@dataclass(frozen=True)
class Download:
    """Published file."""

    file: str  # path in the data folder
    address: str
    size: int  # in bytes
    sha256: str | None  # None if unknown: then the checksum is printed, not checked


@dataclass(frozen=True)
class DataSet:
    """Labelled texts: how they are read, and where they are published."""

    labels: tuple[str, ...]  # by index
    tokenizer: str  # name in `TOKENIZERS`
    find_sources: Callable[[Path], Mapping[str, DataFile]]  # finds its files in a data folder
    read: Callable[[Path], Mapping[str, Rows]]  # reads the rows of each split
    count: Callable[[Path], Mapping[str, Rows]] | None = (
        None  # a faster `read` for counting: texts may be wrong
    )
    documents: bool = False  # texts are made of sentences
    translation: bool = False  # the column `target` is a translation of the other, and there are no labels
    published: Mapping[str, int] = field(default_factory=dict)  # labelled rows of each complete split
    about: str = ""  # one line
    licence: str = ""
    downloads: tuple[Download, ...] = ()


@dataclass(frozen=True)
class VectorSet:
    """Word vectors."""

    about: str  # one line
    licence: str
    published: int  # number of words
    downloads: tuple[Download, ...] = ()  # none if they are made from something else, as `about` says


def _publish(
    reader: DataSet, published: Sequence[int], about: str, licence: str, *downloads: Download
) -> DataSet:
    """Add to a reader the labelled rows of train, dev, test and test_2017, and where to get the data."""
    rows = dict(zip((*SPLITS, "test_2017"), published, strict=False))
    return replace(reader, published=rows, about=about, licence=licence, downloads=downloads)


def _publish_tang(name: str, published: Sequence[int], about: str) -> DataSet:
    sources, read = partial(tang.find_sources, name), partial(tang.read, name)
    count, about = partial(read, raw=True), f"{about} (Tang et al. 2015, in {tang.ARCHIVE})"
    reader = DataSet(tang.LABELS[name], "treebank", sources, read, count, documents=True)
    return _publish(reader, published, about, "as its authors state (research)")


def _publish_pairs(name: str, published: Sequence[int], about: str, licence: str) -> DataSet:
    sources, read = partial(parallel.find_sources, name), partial(parallel.read, name)
    count = partial(read, raw=True)
    reader = DataSet(parallel.LABELS, "moses-en", sources, read, count, translation=True)
    return _publish(reader, published, about, licence)


_SST = Download(
    f"sst/{sst.ARCHIVE}",
    f"https://nlp.stanford.edu/sentiment/{sst.ARCHIVE}",
    789_539,
    "5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
)
_SST_LICENCE = "as its authors state (Stanford Sentiment Treebank, research)"
_ACLIMDB = DataSet(
    aclimdb.LABELS,
    "informal",
    aclimdb.find_sources,
    aclimdb.read,
    partial(aclimdb.read, raw=True),
    documents=True,
)

DATA: dict[str, DataSet] = {
    "snli": _publish(
        DataSet(snli.LABELS, "paper", snli.find_sources, snli.read),
        (549_367, 9_842, 9_824),
        "Stanford Natural Language Inference corpus 1.0: pairs of English sentences",
        "CC BY-SA 4.0",
        Download(
            "snli_1.0.zip",
            "https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
            94_550_081,
            "afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
        ),
    ),
    "wikiqa": _publish(
        DataSet(wikiqa.LABELS, "lower", wikiqa.find_sources, wikiqa.read),
        (20_360, 2_733, 6_165),
        "WikiQA: questions, and sentences of Wikipedia of which some answer them",
        "Microsoft Research data licence, research only",
        Download(
            "WikiQACorpus.zip",
            "https://download.microsoft.com/download/E/5/F/E5FCFCEE-7005-4814-853D-DAA7C66507E0/WikiQACorpus.zip",
            7_094_233,
            sha256=None,
        ),
    ),
    "sst-fine": _publish(
        DataSet(sst.LABELS, "treebank", sst.find_sources, sst.read),
        (318_582, 1_101, 2_210),
        "Stanford Sentiment Treebank, five classes: phrases and sentences of film reviews",
        _SST_LICENCE,
        _SST,
    ),
    "sst-binary": _publish(
        DataSet(sst.BINARY_LABELS, "treebank", sst.find_sources, partial(sst.read, binary=True)),
        (98_794, 872, 1_821),
        "Stanford Sentiment Treebank, two classes: without neutral phrases and sentences",
        _SST_LICENCE,
        _SST,
    ),
    "yelp13": _publish_tang(
        "yelp13", (268_013, 33_504, 33_501), "Yelp 13: reviews of restaurants, 1 to 5 stars"
    ),
    "imdb": _publish_tang("imdb", (278_733, 34_841, 34_841), "IMDB: reviews of films, 1 to 10 stars"),
    "aclimdb": _publish(
        _ACLIMDB,
        (22_600, 2_400, 25_000),
        "Large Movie Review Dataset 1.0: reviews of films, 1 to 4 and 7 to 10 stars",
        "as its authors state (Maas et al. 2011, research)",
        Download(
            aclimdb.ARCHIVE,
            f"https://ai.stanford.edu/~amaas/data/sentiment/{aclimdb.ARCHIVE}",
            84_125_825,
            "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
        ),
    ),
    "iwslt14": _publish_pairs(
        "iwslt14",
        (110_439, 4_998, 4_793),
        "IWSLT 2014, English to German: talks, pairs of at most 25 words a side",
        "CC BY-NC-ND (TED)",
    ),
    "multi30k": _publish_pairs(
        "multi30k",
        (29_000, 1_014, 1_000, 1_000),
        "Multi30k, English to German: captions of photographs",
        "as its authors state (Elliott et al. 2016, research)",
    ),
    "europarl": _publish_pairs(
        "europarl",
        (110_000, 1_299, 1_912),
        "Europarl, English to German: 110,000 pairs of parliament speech, at most 25 words a side",
        "as its authors state (Koehn 2005)",
    ),
}

_GLOVE_6B = Download(
    "vectors/glove.6B.zip",
    "https://nlp.stanford.edu/data/glove.6B.zip",
    862_182_613,
    "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
)
_GLOVE_840B = Download(
    "vectors/glove.840B.300d.zip",
    "https://nlp.stanford.edu/data/glove.840B.300d.zip",
    2_176_768_927,
    "c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f",
)
_COMMON_CRAWL = "GloVe of 840 billion words of Common Crawl, with case: the paper's vectors"
_WIKIPEDIA = "GloVe of 6 billion words of Wikipedia and news, in lower case"
_SPACY = "vectors of spaCy's medium English model, with case, as .npy, .words.txt and .aliases.tsv"

VECTORS: dict[str, VectorSet] = {
    "glove.840B.300d": VectorSet(_COMMON_CRAWL, "PDDL 1.0", 2_196_017, (_GLOVE_840B,)),
    "glove.6B.100d": VectorSet(_WIKIPEDIA, "PDDL 1.0", 400_000, (_GLOVE_6B,)),
    "glove.6B.300d": VectorSet("the same, 300 numbers a word", "PDDL 1.0", 400_000, (_GLOVE_6B,)),
    "spacy.md.300d": VectorSet(_SPACY, "CC0", 20_000),
}


def get_data_set(name: str) -> DataSet:
    """Return a data set by its name."""
    if name not in DATA:
        raise DataError(f"no data set named {_explain_unknown(name, DATA)}")
    return DATA[name]


def describe_data(name: str) -> dict[str, str]:
    """Describe a published data set and its licence for a model card; return {} for other data."""
    if name not in DATA:
        return {}
    entry = DATA[name]
    text = f"{name} ({entry.about}; published training set of {entry.published['train']:,} examples)"
    return {"data": text, "data license": entry.licence}


def get_downloads(name: str) -> tuple[Download, ...]:
    """Return the files to download for a data set or word vectors."""
    entries: dict[str, DataSet | VectorSet] = {**DATA, **VECTORS}
    if name not in entries:
        raise DataError(f"no data set or word vectors named {_explain_unknown(name, entries)}")
    entry = entries[name]
    if not entry.downloads:
        folder = "vectors/" if name in VECTORS else "the data folder"
        wrong = f"{name} cannot be fetched: {entry.about}; put its files into {folder} yourself"
        raise DataError(wrong, ("status",))
    return entry.downloads


def _explain_unknown(name: str, known: Mapping[str, object]) -> str:
    near = suggest(name, known)
    return f"{name!r}{f' (did you mean {near}?)' if near else ''}; there are: {', '.join(known)}"
