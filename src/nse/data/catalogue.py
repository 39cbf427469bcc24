"""What is published where. A new data set is an entry here and a reader beside."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nse.data import snli, sst, wikiqa
from nse.data.rows import Rows
from nse.errors import DataError
from nse.text.published import Source


@dataclass(frozen=True)
class Download:
    """A published file.

    Attributes:
        file: Where it goes in the data folder.
        address: Where it is published.
        size: In bytes.
        sha256: None where no checksum is known for certain: then the size is checked, and the checksum told.
    """

    file: str
    address: str
    size: int
    sha256: str | None


@dataclass(frozen=True)
class DataSet:
    """Labelled texts.

    Attributes:
        about: What it is, in a line.
        section: Of the paper, in which it is used.
        licence: Under which it is published.
        downloads: The files to fetch.
        published: How many labelled rows each split has when whole.
        labels: In the order of their numbers.
        tokenizer: By its name in `TOKENIZERS`.
        sources: From a data folder to the file of each split; `DataError` where one is missing.
        read: From a data folder to the rows of each split.
    """

    about: str
    section: str
    licence: str
    downloads: tuple[Download, ...]
    published: Mapping[str, int]
    labels: tuple[str, ...]
    tokenizer: str
    sources: Callable[[Path], Mapping[str, Source]]
    read: Callable[[Path], Mapping[str, Rows]]


@dataclass(frozen=True)
class VectorSet:
    """Word vectors.

    Attributes:
        about: What they are, in a line.
        licence: Under which they are published.
        published: How many words they have when whole.
        downloads: The files to fetch; none where they are made from something else, which `about` tells.
    """

    about: str
    licence: str
    published: int
    downloads: tuple[Download, ...] = ()


GLOVE_6B = Download(
    "vectors/glove.6B.zip",
    "https://nlp.stanford.edu/data/glove.6B.zip",
    862_182_613,
    "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
)

SST = Download(
    f"sst/{sst.ARCHIVE}",
    f"https://nlp.stanford.edu/sentiment/{sst.ARCHIVE}",
    789_539,
    "5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
)
SST_LICENCE = "as its authors state (Stanford Sentiment Treebank, research)"

DATA: dict[str, DataSet] = {
    "snli": DataSet(
        about="Stanford Natural Language Inference corpus 1.0: pairs of English sentences",
        section="4.1",
        licence="CC BY-SA 4.0",
        downloads=(
            Download(
                "snli_1.0.zip",
                "https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
                94_550_081,
                "afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
            ),
        ),
        published={"train": 549_367, "dev": 9_842, "test": 9_824},
        labels=snli.LABELS,
        tokenizer="paper",
        sources=snli.sources,
        read=snli.read,
    ),
    "wikiqa": DataSet(
        about="WikiQA: questions, and sentences of Wikipedia of which some answer them",
        section="4.2",
        licence="Microsoft Research data licence, research only",
        downloads=(
            Download(
                "WikiQACorpus.zip",
                "https://download.microsoft.com/download/E/5/F/E5FCFCEE-7005-4814-853D-DAA7C66507E0/WikiQACorpus.zip",
                7_094_233,
                sha256=None,
            ),
        ),
        published={"train": 20_360, "dev": 2_733, "test": 6_165},
        labels=wikiqa.LABELS,
        tokenizer="lower",
        sources=wikiqa.sources,
        read=wikiqa.read,
    ),
    "sst-fine": DataSet(
        about="Stanford Sentiment Treebank, five classes: phrases and sentences of film reviews",
        section="4.3",
        licence=SST_LICENCE,
        downloads=(SST,),
        published={"train": 318_582, "dev": 1_101, "test": 2_210},
        labels=sst.LABELS,
        tokenizer="treebank",
        sources=sst.sources,
        read=sst.read_fine,
    ),
    "sst-binary": DataSet(
        about="Stanford Sentiment Treebank, two classes: the same without what is neutral",
        section="4.3",
        licence=SST_LICENCE,
        downloads=(SST,),
        published={"train": 98_794, "dev": 872, "test": 1_821},
        labels=sst.BINARY_LABELS,
        tokenizer="treebank",
        sources=sst.sources,
        read=sst.read_binary,
    ),
}

VECTORS: dict[str, VectorSet] = {
    "glove.840B.300d": VectorSet(
        about="GloVe of 840 billion words of Common Crawl, with case: the paper's vectors",
        licence="PDDL 1.0",
        published=2_196_017,
        downloads=(
            Download(
                "vectors/glove.840B.300d.zip",
                "https://nlp.stanford.edu/data/glove.840B.300d.zip",
                2_176_768_927,
                "c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f",
            ),
        ),
    ),
    "glove.6B.100d": VectorSet(
        about="GloVe of 6 billion words of Wikipedia and news, in lower case",
        licence="PDDL 1.0",
        published=400_000,
        downloads=(GLOVE_6B,),
    ),
    "glove.6B.300d": VectorSet(
        about="the same, 300 numbers a word",
        licence="PDDL 1.0",
        published=400_000,
        downloads=(GLOVE_6B,),
    ),
    "spacy.md.300d": VectorSet(
        about="vectors of spaCy's medium English model, with case, as .npy, .words.txt and .aliases.tsv",
        licence="CC0",
        published=20_000,
    ),
}


def data_set(name: str) -> DataSet:
    """A data set by its name."""
    if name not in DATA:
        raise DataError(f"no data set is called {name!r}{_nearest(name, DATA)}; there is {', '.join(DATA)}")
    return DATA[name]


def downloads(name: str) -> tuple[Download, ...]:
    """The files to fetch for a data set, or for word vectors."""
    known: dict[str, DataSet | VectorSet] = {**DATA, **VECTORS}
    if name not in known:
        raise DataError(f"nothing is called {name!r}{_nearest(name, known)}; there is {', '.join(known)}")
    if not known[name].downloads:
        raise DataError(f"{name} has no public address: {known[name].about}; put them into vectors/ yourself")
    return known[name].downloads


def _nearest(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {near[0]}?" if near else ""
