"""Fault 10: an over-long text is cut and said to be cut, or refused if strict; a word of 10 MB is refused."""

from serve.running import connect, read_error, read_json, send

LONGEST = 100  # words, of the model that is served


def test_a_long_text_is_truncated_and_the_answer_says_so(served):
    whole, long = " ".join(["good"] * LONGEST), " ".join(["good"] * LONGEST + ["bad"] * 900)
    for path, name in (("/v1/predict", "predictions"), ("/v1/encode", "vectors")):
        one, two = read_json(send(served, path, {"texts": [whole, long]}))[name]
        assert (one["words"], one["cut"]) == (LONGEST, 0)
        assert (two["words"], two["cut"]) == (LONGEST, 900)
        key = "label" if name == "predictions" else "vector"
        assert one[key] == two[key]  # what was cut had no say


def test_a_long_text_is_refused_if_strict(served):
    ask = {"texts": ["good", "good " * (LONGEST + 1)], "strict": True}
    for path in ("/v1/predict", "/v1/encode"):
        assert f"sentence 2 has 101 words and the model reads {LONGEST}" in read_error(
            send(served, path, ask), 400
        )
    ask["texts"][1] = "good " * LONGEST
    assert read_json(send(served, "/v1/predict", ask))["predictions"][1]["cut"] == 0


def test_too_many_characters_are_refused(served):
    ask = {"texts": ["good", "a" * 10_001]}
    message = "text 2 has 10,001 characters, and at most 10,000 allowed: shorten it"
    assert read_error(send(served, "/v1/predict", ask), 413) == message
    ask["texts"][1] = "\U0001f600" * 10_000  # a word, of which JSON makes twelve bytes a character
    assert read_json(send(served, "/v1/predict", ask))["predictions"][1]["unknown"] == 1


def test_too_many_texts_are_refused(served):
    many = {"texts": ["good"] * 257}
    message = "there are 257 texts, and at most 256 allowed: send fewer"
    assert read_error(send(served, "/v1/predict", many), 413) == message
    assert len(read_json(send(served, "/v1/predict", {"texts": ["good"] * 256}))["predictions"]) == 256


def test_a_word_of_ten_megabytes_is_refused(served):
    body = b'{"texts": ["' + b"a" * 10_000_000 + b'"]}'
    assert "longer than 262,144 bytes" in read_error(send(served, "/v1/predict", body), 413)


def test_an_endless_body_is_refused_before_it_ends(served):
    with connect(served) as line:
        line.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000000\r\n\r\n")
        sent = 0
        try:
            while sent < 100_000_000:
                sent += line.send(b"a" * 1_000_000)
        except OSError:  # it has stopped reading
            pass
        assert sent < 100_000_000
    assert read_json(send(served, "/health/ready")) == {"status": "ready"}
