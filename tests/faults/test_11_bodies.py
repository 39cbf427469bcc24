"""Fault 11: huge bodies, deep JSON, bad UTF-8, NaN, NUL, lone surrogates, <script>: 413, 422 or 400."""

import json

import pytest

from serve.running import read_error, read_json, read_metric, send

BROKEN = {
    "nothing": b"",
    "half": b'{"texts": ["a"',
    "more than one": b'{"texts": ["a"]} {"texts": ["a"]}',
    "deep": b"[" * 100_000,
    "deep inside": b'{"texts": ' + b"[" * 100_000,
    "deep objects": b'{"a":' * 40_000,
    "not UTF-8": b'{"texts": ["\xff\xfe"]}',
    "overlong UTF-8": b'{"texts": ["\xc0\xaf"]}',
    "a surrogate in UTF-8": b'{"texts": ["\xed\xa0\x80"]}',
    "half a character": b'{"texts": ["a\\ud800"]}',
    "the other half": b'{"texts": ["\\udc00a"]}',
    "UTF-16": '{"texts": ["a"]}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"texts": ["a"]}',
    "a raw NUL": b'{"texts": ["\x00"]}',
    "NaN": b'{"texts": NaN}',
    "Infinity": b'{"texts": [Infinity]}',
    "-Infinity": b"-Infinity",
    "a number of a thousand digits": b'{"texts": [' + b"9" * 1000 + b"]}",
    "a float without end": b'{"texts": [1e999999]}',
}
MISSHAPEN = {
    "null": None,
    "a list": [],
    "a text": "texts",
    "empty": {},
    "no texts": {"texts": []},
    "a text for texts": {"texts": "a"},
    "a number": {"texts": [1]},
    "nothing among texts": {"texts": ["a", None]},
    "true": {"texts": [True]},
    "a list in it": {"texts": [["a"]]},
    "an object in it": {"texts": [{"text": "a"}]},
    "something more": {"texts": ["a"], "text": "a"},
    "strict as a text": {"texts": ["a"], "strict": "yes"},
    "strict as a number": {"texts": ["a"], "strict": 1},
    "a name with a tag": {"texts": ["a"], "<script>alert(1)</script>" * 100: 1},
    "a hundred thousand mistakes": {"texts": [1] * 80_000},
    "ten thousand names": {"texts": ["a"], **{f"name{number}": 0 for number in range(10_000)}},
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_body_that_is_not_json_is_refused(served, body):
    message = read_error(send(served, "/v1/predict", body), 422)
    assert message.startswith("Invalid JSON: ") or "expected" in message or "Input should be" in message
    assert message.endswith('send {"texts": ["..."]}')
    assert len(message) < 300


@pytest.mark.parametrize("body", MISSHAPEN.values(), ids=MISSHAPEN)
def test_a_body_of_another_shape_is_refused(served, body):
    for path in ("/v1/predict", "/v1/encode", "/v1/trace"):
        message = read_error(send(served, path, body if body is not None else b"null"), 422)
        assert message.endswith('send {"texts": ["..."]}')
        assert len(message) < 300


TWICE = {
    "texts": b'{"texts": ["a"], "texts": ["b"]}',
    "the same": b'{"texts": ["a"], "texts": ["a"]}',
    "written in another way": b'{"texts": ["a"], "te\\u0078ts": ["b"]}',
    "strict": b'{"strict": true, "texts": ["a"], "strict": false}',
    "the first of another shape": b'{"texts": [[{"a": 1, "a": 2}]], "texts": ["a"]}',
    "a number of a thousand digits": b'{"texts": ' + b"9" * 4000 + b', "texts": ["a"]}',
}


@pytest.mark.parametrize("body", TWICE.values(), ids=TWICE)
def test_a_duplicate_key_is_refused(served, body):
    for path in ("/v1/predict", "/v1/encode", "/v1/trace"):
        message = read_error(send(served, path, body), 400)
        assert "occurs twice: send it once; send {" in message


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "good film\x00"])
def test_a_nul_character_is_refused(served, text):
    for path in ("/v1/predict", "/v1/encode"):
        message = read_error(send(served, path, {"texts": ["good", text]}), 400)
        assert message == "text 2 contains a NUL character: remove it"
    assert "text 1 contains a NUL" in read_error(send(served, "/v1/trace", {"texts": [text]}), 400)


def test_unusual_texts_are_answered(served):
    texts = ["<script>alert(1)</script>", "\u202egood", "\ufeffgood", "a\u0300" * 50, "{}"]
    texts += ["' OR 1=1 --", "${jndi:ldap://x}", "../../etc/passwd", "\r\nX-Injected: 1", "\U0010ffff"]
    answer = send(served, "/v1/predict", {"texts": texts})
    assert len(read_json(answer)["predictions"]) == len(texts)
    assert "X-Injected" not in answer[1]
    assert "<script>" not in json.dumps(read_json(answer))
    trace = send(served, "/v1/trace", {"texts": ["<script>alert(1)</script>"]})
    assert trace[1]["Content-Type"] == "application/json"  # never HTML, whatever is in it
    assert trace[1]["X-Content-Type-Options"] == "nosniff"


def test_unusual_requests_get_errors_in_the_usual_format(served):
    for path in ("/%00", "/v1/%2e%2e/model", "/<script>", "/v1/predict;a=b", "/" + "a" * 5000):
        assert read_error(send(served, path), 404) == "Not Found"
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"):
        assert read_error(send(served, "/v1/predict", method=method), 405)
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "a/b/c"):
        answer = send(served, "/v1/predict", {"texts": ["a"]}, {"Content-Type": kind})
        assert "Content-Type: application/json" in read_error(answer, 415)
    for kind in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/json;"):
        assert send(served, "/v1/predict", {"texts": ["a"]}, {"Content-Type": kind})[0] == 200


def test_bad_requests_are_not_counted_as_server_errors(served):
    """Of everything that tests have sent so far, nothing was answered with 500."""
    send(served, "/v1/predict", b"\xff")
    assert read_metric(served, 'nse_requests_total{route="/v1/predict",status="422"}') > 0
    assert read_metric(served, 'nse_requests_total{route="/v1/predict",status="500"}') == 0
    assert read_metric(served, 'nse_requests_total{route="/v1/trace",status="500"}') == 0
    assert read_metric(served, 'nse_requests_total{route="other",status="500"}') == 0
