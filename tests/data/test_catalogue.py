"""The catalogue of published data sets is complete and consistent."""

import re

import pytest

from nse.data.catalogue import DATA, VECTORS, get_data_set, get_downloads
from nse.errors import DataError
from nse.text.tokenize import TOKENIZERS

ENTRIES = {**DATA, **VECTORS}


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_of_the_catalogue_are_complete(name):
    entry = ENTRIES[name]
    assert entry.about
    assert entry.licence
    for download in entry.downloads:
        assert download.address.startswith("https://")
        assert download.size > 100_000
        assert download.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", download.sha256)
        assert ".." not in download.file
        assert not download.file.startswith("/")


def test_every_data_set_has_a_reader_and_a_tokenizer():
    for entry in DATA.values():
        assert entry.tokenizer in TOKENIZERS
        assert {"train", "dev", "test"} <= set(entry.published)
        assert len(set(entry.labels)) == len(entry.labels)
        assert len(entry.labels) == 1 if entry.translation else len(entry.labels) > 1


def test_an_unknown_name_is_an_error_that_suggests_the_nearest():
    with pytest.raises(DataError, match=r"'glove.840B' \(did you mean glove.840B.300d\?\); there are: snli"):
        get_downloads("glove.840B")
    with pytest.raises(DataError, match=r"no data set named '../x'; there are: snli"):
        get_data_set("../x")
    with pytest.raises(
        DataError, match=r"spacy.md.300d cannot be fetched: .*; put its files into vectors/ yourself"
    ):
        get_downloads("spacy.md.300d")
