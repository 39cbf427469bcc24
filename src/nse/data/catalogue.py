"""What is published where. A new data set is an entry here and a reader beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nse.data.readers import aclimdb, parallel, snli, sst, tang, wikiqa
from nse.data.splits import Rows
from nse.errors import DataError, suggest
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
        documents: Whether texts are made of sentences.
        translation: Whether the second column is a translation of the first, which has no label.
        count: From a data folder to how many rows each split has, where reading them all takes long.
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
    documents: bool = False
    translation: bool = False
    count: Callable[[Path], Mapping[str, int]] | None = None


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
TANG_LICENCE = "as its authors state (research)"
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
    "yelp13": DataSet(
        about=f"Yelp 13: reviews of restaurants, 1 to 5 stars (Tang et al. 2015, in {tang.ARCHIVE})",
        section="4.4",
        licence=TANG_LICENCE,
        downloads=(),
        published={"train": 268_013, "dev": 33_504, "test": 33_501},
        labels=tang.YELP_LABELS,
        tokenizer="treebank",
        sources=tang.yelp_sources,
        read=tang.read_yelp,
        documents=True,
    ),
    "imdb": DataSet(
        about=f"IMDB: reviews of films, 1 to 10 stars (Tang et al. 2015, in {tang.ARCHIVE})",
        section="4.4",
        licence=TANG_LICENCE,
        downloads=(),
        published={"train": 278_733, "dev": 34_841, "test": 34_841},
        labels=tang.IMDB_LABELS,
        tokenizer="treebank",
        sources=tang.imdb_sources,
        read=tang.read_imdb,
        documents=True,
    ),
    "aclimdb": DataSet(
        about="Large Movie Review Dataset 1.0: reviews of films, 1 to 4 and 7 to 10 stars",
        section="4.4",
        licence="as its authors state (Maas et al. 2011, research)",
        downloads=(
            Download(
                aclimdb.ARCHIVE,
                f"https://ai.stanford.edu/~amaas/data/sentiment/{aclimdb.ARCHIVE}",
                84_125_825,
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            ),
        ),
        published={"train": 22_600, "dev": 2_400, "test": 25_000},
        labels=aclimdb.LABELS,
        tokenizer="informal",
        sources=aclimdb.sources,
        read=aclimdb.read,
        documents=True,
        count=aclimdb.count,
    ),
    "iwslt14": DataSet(
        about="IWSLT 2014, English to German: talks, pairs of at most 25 words a side",
        section="4.5",
        licence="CC BY-NC-ND (TED)",
        downloads=(),
        published={"train": 110_439, "dev": 4_998, "test": 4_793},
        labels=parallel.LABELS,
        tokenizer="moses-en",
        sources=parallel.iwslt14_sources,
        read=parallel.read_iwslt14,
        translation=True,
    ),
    "multi30k": DataSet(
        about="Multi30k, English to German: captions of photographs",
        section="4.5",
        licence="as its authors state (Elliott et al. 2016, research)",
        downloads=(),
        published={"train": 29_000, "dev": 1_014, "test": 1_000, "test_2017": 1_000},
        labels=parallel.LABELS,
        tokenizer="moses-en",
        sources=parallel.multi30k_sources,
        read=parallel.read_multi30k,
        translation=True,
        count=parallel.count_multi30k,
    ),
    "europarl": DataSet(
        about="Europarl, English to German: 110,000 pairs of parliament speech, at most 25 words a side",
        section="4.5",
        licence="as its authors state (Koehn 2005)",
        downloads=(),
        published={"train": 110_000, "dev": 1_299, "test": 1_912},
        labels=parallel.LABELS,
        tokenizer="moses-en",
        sources=parallel.europarl_sources,
        read=parallel.read_europarl,
        translation=True,
        count=parallel.count_europarl,
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


def describe_data(name: str) -> dict[str, str]:
    """Say for a model's card what a data set is and under which licence; nothing of one not published."""
    if name not in DATA:
        return {}
    about, whole = DATA[name].about, DATA[name].published["train"]
    told = f"{name} ({about}; {whole:,} examples to train on when whole)"
    return {"data": told, "data license": DATA[name].licence}


def downloads(name: str) -> tuple[Download, ...]:
    """The files to fetch for a data set, or for word vectors."""
    known: dict[str, DataSet | VectorSet] = {**DATA, **VECTORS}
    if name not in known:
        raise DataError(f"nothing is called {name!r}{_nearest(name, known)}; there is {', '.join(known)}")
    if not known[name].downloads:
        place = (
            "vectors/" if name in VECTORS else "the data folder (`nse data status` tells what is looked for)"
        )
        raise DataError(f"{name} cannot be fetched: {known[name].about}; put its files into {place} yourself")
    return known[name].downloads


def _nearest(name: str, known: Mapping[str, object]) -> str:
    near = suggest(name, known)
    return f", did you mean {near}?" if near else ""
