"""Rows come out of every format with the numbers of their lines, and a broken line is told by its number."""

import bz2
import gzip
import json
import lzma
import os
import sys

import pytest

from nse.cli.rows import Row, RowSchema, parse_keys, read_rows, split_chunks, stop_at_bad_line
from nse.data import records as lines_module
from nse.data.records import BadLine, Format, LineSource, guess_format
from nse.errors import DataError, InputError

ONE, PAIR = RowSchema(("sentence",)), RowSchema(("premise", "hypothesis"))
RANKED = RowSchema(("question", "answer"), list_key="candidates")


def read(path, content, form, columns=ONE):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with LineSource(path) as source:
        return list(read_rows(source, form, columns))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows"


def test_plain_text_has_a_row_per_line_without_blank_lines(path):
    content = b"\xef\xbb\xbf a dog \r\n\n \t\nthe\tcat"
    assert read(path, content, Format.text) == [Row(1, ("a dog",)), Row(4, ("the\tcat",))]
    assert read(path, content, Format.text, ONE._replace(keeps_blank=True)) == [
        Row(1, (" a dog ",)),
        Row(2, ("",)),
        Row(3, (" \t",)),
        Row(4, ("the\tcat",)),
    ]


def test_the_texts_of_a_pair_are_separated_by_a_tab(path):
    assert read(path, "a dog\t it runs\n\na\n\tb\tc\n", Format.text, PAIR) == [
        Row(1, ("a dog", "it runs")),
        BadLine(3, "expected premise and hypothesis with a tab between, got 1 of 2"),
        BadLine(4, "expected premise and hypothesis with a tab between, got 3 of 2"),
    ]


def test_json_lines_use_the_models_input_names_or_text(path):
    content = '{"hypothesis": "b", "premise": "a", "id": 7, "x": [NaN]}\n\n{"texts": ["c", "d"], "id": "e"}\n'
    assert read(path, content, Format.jsonl, PAIR) == [Row(1, ("a", "b"), 7), Row(3, ("c", "d"), "e")]
    content = '{"sentence": "a", "text": "no"}\n{"text": "b"}\n{"text": "", "id": 1.5}\n'
    assert read(path, content, Format.jsonl) == [Row(1, ("a",)), Row(2, ("b",)), Row(3, ("",), 1.5)]


def test_columns_may_have_other_names(path):
    columns = parse_keys("premise=sentence1, hypothesis = sentence2", PAIR._replace(id="pairID"))
    content = '{"sentence1": "a", "sentence2": "b", "premise": "no", "pairID": "x"}\n{"texts": ["a", "b"]}\n'
    assert read(path, content, Format.jsonl, columns) == [
        Row(1, ("a", "b"), "x"),
        BadLine(2, "there is no 'pairID', which --id names"),
    ]
    assert read(path, "pairID\tsentence2\tsentence1\nx\tb\ta\n", Format.tsv, columns) == [
        Row(2, ("a", "b"), "x")
    ]
    for given in ("sentence=review", "text=review"):
        columns = parse_keys(given, ONE)
        assert read(path, "review,text\na,b\n", Format.csv, columns) == [Row(2, ("a",))]
    assert read(path, '{"text": "a"}\n', Format.jsonl, columns)[0].why.startswith("there is no key 'review'")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("premise", "--columns: expected premise=COLUMN,hypothesis=COLUMN, got 'premise'"),
        ("premise=", "--columns: expected premise=COLUMN,hypothesis=COLUMN, got 'premise='"),
        ("", "--columns: expected"),
        ("premis=a", "expected one of premise, hypothesis before =, got 'premis'"),
        ("text=a", "expected one of premise, hypothesis before =, got 'text'"),
    ],
)
def test_a_malformed_columns_option_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        parse_keys(given, PAIR)


def test_quotes_are_literal_in_tsv_and_not_in_csv(path):
    content = 'id\tsentence\nx\ta "dog\n\ny\t"runs"\n'
    assert read(path, content, Format.tsv) == [Row(2, ('a "dog',), "x"), Row(4, ('"runs"',), "y")]
    content = 'id,sentence\r\nx,"a ""dog"", or\r\ntwo"\r\n,\r\ny,5" pipe\r\nz,"c"\r\n'
    assert read(path, content, Format.csv) == [
        Row(2, ('a "dog", or\ntwo',), "x"),
        Row(5, ('5" pipe',), "y"),
        Row(6, ("c",), "z"),
    ]


def test_candidates_may_be_a_list_or_rows(path):
    content = '{"question": "who", "candidates": ["a", "b"], "id": 3}\n{"question": "what", "answer": "c"}\n'
    assert read(path, content, Format.jsonl, RANKED) == [
        Row(1, ("who", "a"), 3, 1),
        Row(1, ("who", "b"), 3, 2),
        Row(2, ("what", "c")),
    ]
    content = '{"question": "who", "candidates": "a"}\n{"question": "who", "candidates": []}\n'
    content += '{"candidates": ["a"]}\n{"question": "who", "candidates": ["a", 3]}\n'
    whys = [problem.why for problem in read(path, content, Format.jsonl, RANKED)]
    assert whys[0] == whys[1] == whys[3] == "'candidates': expected a list of texts"
    assert whys[2].startswith("there is no key 'question'")
    named = parse_keys("candidates=answers", RANKED)
    assert read(path, '{"question": "who", "answers": ["a"]}', Format.jsonl, named) == [
        Row(1, ("who", "a"), None, 1)
    ]


GOOD = {
    Format.text: b"good",
    Format.jsonl: b'{"sentence": "good"}',
    Format.tsv: b"good\tx",
    Format.csv: b"good,x",
}
BAD = [
    (Format.text, b"caf\xe9", "is not UTF-8"),
    (Format.text, b"g\0o\0", "holds a NUL"),
    (Format.text, b"g" * 65, "is longer than 64 bytes; break it up"),
    (Format.jsonl, b"g" * 65, "is longer than 64 bytes; break it up"),
    (Format.jsonl, b'{"sentence": "caf\xe9"}', "is not UTF-8"),
    (Format.jsonl, b'{"sentence": "good"', "is not JSON: Expecting ',' delimiter at column 20"),
    (Format.jsonl, b'["good"]', "expected a JSON object, got a list; write one object on each line"),
    (Format.jsonl, b'"good"', "expected a JSON object, got a text"),
    (Format.jsonl, b"{}", "there is no key 'sentence' (there are none); name it with --columns"),
    (Format.jsonl, b'{"a": 1}', "there is no key 'sentence' (there are 'a'); name it with --columns"),
    (Format.jsonl, b'{"sentence": null}', "'sentence': expected a text, got null"),
    (Format.jsonl, b'{"sentence": 3}', "'sentence': expected a text, got a number"),
    (Format.jsonl, b'{"sentence": ["a"]}', "'sentence': expected a text, got a list"),
    (Format.jsonl, b'{"sentence": "a", "id": NaN}', "'id': is NaN, infinite"),
    (Format.jsonl, b'{"sentence": "a", "id": 1e999}', "'id': is NaN, infinite"),
    (Format.jsonl, b'{"sentence": "a", "id": "\\ud800"}', "'id': is NaN, infinite, or holds half"),
    (Format.jsonl, b'{"sentence": "a", "id": true}', "'id': expected a text or a number, got a boolean"),
    (Format.tsv, b"good", "expected 2 fields, as in the header, got 1"),
    (Format.tsv, b"a\tb\tc", "expected 2 fields, as in the header, got 3"),
    (Format.tsv, b"caf\xe9\tb", "is not UTF-8"),
    (Format.tsv, b"g" * 65, "is longer than 64 bytes"),
    (Format.csv, b"a,b,c", "expected 2 fields, as in the header, got 3"),
    (Format.csv, b"caf\xe9,b", "is not UTF-8"),
    (Format.csv, b'"caf\xe9\n",b', "is not UTF-8"),
    (Format.csv, b"g" * 65, "is longer than 64 bytes"),
    (Format.csv, b'"a"b,c', "is not CSV: ',' expected after '\"'"),
]


@pytest.mark.parametrize(("form", "line", "why"), BAD)
def test_a_bad_line_is_reported_by_number_and_the_others_are_read(form, line, why, path, monkeypatch):
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 64)
    header = {Format.tsv: [b"sentence\tx"], Format.csv: [b"sentence,x"]}.get(form, [])
    result = read(path, b"\n".join([*header, GOOD[form], line, GOOD[form]]), form)
    first, last = len(header) + 1, len(header) + 3 + line.count(b"\n")
    assert [(row.number, row.texts) for row in (result[0], result[2])] == [
        (first, ("good",)),
        (last, ("good",)),
    ]
    assert len(result) == 3
    assert isinstance(result[1], BadLine)
    assert result[1].number == first + 1
    assert why in result[1].why


def test_dangerous_json_is_a_bad_line(path):
    deep, digits = "[" * 100_000 + "]" * 100_000, "9" * 5_000
    for value in (deep, digits):
        (problem, row) = read(path, f'{{"x": {value}}}\n{{"text": "a"}}\n', Format.jsonl)
        assert problem.why.startswith("is not JSON that can be read")
        assert row == Row(2, ("a",))


OPEN = {
    "up to the end": ("b\n" * 7_344, "unexpected end of data"),
    "in the last line": ("", "unexpected end of data"),
    "past what a field may have": ("b\n" * 100_000, r"field larger than field limit \(131072\)"),
    "in fields that are short": ('b","b\n' * 300_000, "not closed for 1,048,576 bytes"),
    "up to the next quote": ('b,1\n"good, really",2\n', "',' expected after '\"'"),
}


@pytest.mark.parametrize("name", OPEN)
def test_an_unclosed_quote_ends_reading(name, path):
    """Whatever comes after it: nobody knows where the next row begins."""
    rest, why = OPEN[name]
    path.write_text(f'sentence,x\ngood,1\n"two\nlines",2\n"a,3\n{rest}')
    result = []
    wanted = f"rows: line 5: a quote is perhaps not closed: {why}; close it, or double it"
    with pytest.raises(DataError, match=wanted), LineSource(path) as source:
        result.extend(read_rows(source, Format.csv, ONE))
    assert [(row.number, row.texts) for row in result] == [(2, ("good",)), (3, ("two\nlines",))]


def test_an_unclosed_quote_is_found_by_counting_quotes(path):
    with pytest.raises(DataError, match="line 2: a quote is perhaps not closed"):  # though there are two
        read(path, 'sentence,x\n5" nail,"b\n', Format.csv)
    with pytest.raises(DataError, match="line 2: a quote is perhaps not closed: ',' expected"):  # three
        read(path, 'sentence,x\n"a" b "c,1\nd",1\n', Format.csv)


def test_a_bad_record_is_reported_with_all_its_lines(path):
    (problem, row) = read(path, b'sentence,x\n"a\n\nb"\nc,1\n', Format.csv)
    assert problem == BadLine(2, "expected 2 fields, as in the header, got 1", lines=3)
    assert row == Row(5, ("c",))
    (problem, _) = read(path, b'sentence,x\n"a\ncaf\xe9",1\nc,1\n', Format.csv)
    assert problem == BadLine(2, "is not UTF-8", lines=2)


def test_lines_up_to_the_limit_are_read(path, monkeypatch):
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 4)
    whole = [Row(1, ("aaaa",)), Row(2, ("bbbb",))]
    assert read(path, b"aaaa\r\nbbbb", Format.text) == whole
    result = read(path, b"a" * 50 + b"\nbb\n" + b"c" * 5, Format.text)
    assert [each.number for each in result] == [1, 2, 3]
    assert [type(each) for each in result] == [BadLine, Row, BadLine]


@pytest.mark.parametrize("form", [Format.tsv, Format.csv])
def test_a_header_without_the_columns_is_refused(form, path):
    tab = "\t" if form == Format.tsv else ","
    content = tab.join(["a", "b"]) + "\n" + tab.join("cd") + "\n"
    with pytest.raises(DataError, match=r"line 1: there is no column 'premise' in the header \(there are a"):
        read(path, content, form, PAIR)
    with pytest.raises(DataError, match="name yours: --columns premise=COLUMN,hypothesis=COLUMN"):
        read(path, content, form, PAIR)
    with pytest.raises(DataError, match="there is no column 'key'"):
        read(path, content.replace("a", "text"), form, RowSchema(("sentence",), id="key"))
    with pytest.raises(DataError, match="there are 2 columns 'a' in the header"):
        read(path, content.replace("b", "a"), form, parse_keys("text=a", ONE))
    with pytest.raises(DataError, match=r"\(there are c, d \[2J\)"):
        read(path, tab.join(["c", "d\x1b[2J"]) + "\n", form, PAIR)
    with pytest.raises(DataError, match="line 1: the header is not UTF-8"):
        read(path, b"caf\xe9\na\n", form, PAIR)
    assert read(path, "", form, PAIR) == []
    assert read(path, content.replace("a", "text"), form) == [Row(2, ("c",))]


def test_plain_text_has_no_columns(path):
    path.write_text("a\n")
    with LineSource(path) as source, pytest.raises(InputError, match="plain text has no columns: leave out"):
        read_rows(source, Format.text, ONE._replace(id="key"))


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.jsonl", Format.jsonl),
        ("a.ndjson", Format.jsonl),
        ("a.json", Format.jsonl),
        ("a.TSV", Format.tsv),
        ("a.csv", Format.csv),
        ("a.jsonl.xz", Format.jsonl),
        ("a.csv.gz", Format.csv),
        ("a.txt.bz2", Format.text),
        ("a", Format.text),
        (".tsv", Format.text),
    ],
)
def test_the_format_follows_the_suffix(name, form, tmp_path):
    assert guess_format(tmp_path / name) == form


def test_standard_input_is_text():
    assert guess_format(None) == Format.text


@pytest.mark.parametrize(
    ("ending", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_compressed_files_are_opened(ending, compress, tmp_path):
    file, content = tmp_path / f"rows.jsonl{ending}", json.dumps({"text": "a dog"}).encode() + b"\n"
    assert read(file, compress(content * 3), guess_format(file)) == [Row(n, ("a dog",)) for n in (1, 2, 3)]
    for broken in (compress(content * 3)[:-4], content):
        with pytest.raises(DataError, match=rf"rows\.jsonl\{ending}: cannot be read: "):
            read(file, broken, Format.jsonl)


def test_an_unreadable_file_is_refused_when_opened(tmp_path):
    with pytest.raises(DataError, match="nowhere: cannot be read: No such file"):
        LineSource(tmp_path / "nowhere")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        LineSource(tmp_path)


def test_the_position_in_a_file_is_known(path):
    path.write_bytes(b"a dog\n" * 20_000)
    with LineSource(path) as source:
        assert (source.is_regular, source.size, source.bytes_read) == (True, 120_000, 0)
        result = read_rows(source, Format.text, ONE)
        next(result)
        assert 0 < source.bytes_read < 120_000
        assert sum(1 for _ in result) == 19_999
        assert source.bytes_read == 120_000


def test_a_line_is_available_before_the_next_is_written(monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(reading) as handle, os.fdopen(writing, "wb", buffering=0) as other:
        monkeypatch.setattr(sys, "stdin", handle)
        with LineSource(None) as source:
            assert (source.name, source.is_regular) == ("standard input", False)
            result = read_rows(source, Format.text, ONE)
            for number in (1, 2):
                other.write(b"a dog\n")
                assert next(result) == Row(number, ("a dog",))
        assert not handle.closed


def test_at_most_one_chunk_is_read_ahead():
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield Row(len(taken), ("dog",))

    chunks = split_chunks(endless(), 5)
    assert taken == []
    assert [row.number for row in next(chunks)] == [1, 2, 3, 4, 5]
    assert len(taken) == 5
    next(chunks)
    assert len(taken) == 10


def test_long_texts_make_small_chunks(monkeypatch):
    monkeypatch.setattr("nse.cli.rows.MAX_CHUNK_CHARACTERS", 10)
    items = [
        Row(1, ("dog", "cat")),
        Row(2, ("dog", "d")),
        BadLine(3, "no"),
        Row(4, ("d" * 30,)),
        Row(5, ("d",)),
    ]
    assert [[item.number for item in chunk] for chunk in split_chunks(items, 3)] == [[1, 2], [3, 4], [5]]


def test_rows_before_an_error_are_yielded_first():
    def broken():
        yield Row(1, ("dog",))
        raise DataError("broken off")

    chunks = split_chunks(broken())
    assert next(chunks) == [Row(1, ("dog",))]
    with pytest.raises(DataError, match="broken off"):
        next(chunks)


def test_nothing_is_read_after_a_bad_line():
    items = iter([Row(1, ("dog",)), BadLine(2, "no"), Row(3, ("dog",))])
    assert [item.number for item in stop_at_bad_line(items)] == [1, 2]
    assert next(items).number == 3
