"""Odd request bodies, drawn by hypothesis, and a check of the answers."""

import json

from hypothesis import strategies as st

from serve.inside import start_server

PATHS = ("/v1/predict", "/v1/rank", "/v1/translate", "/v1/encode", "/v1/trace")
STATUSES = {200, 400, 413, 415, 422}

NAMES = st.sampled_from(["texts", "question", "candidates", "strict", "beam", "text", ""]) | st.text(
    max_size=5
)
ODD = st.sampled_from(
    [
        "",
        " ",
        "\x00",
        "\u200b",
        "\ud800",
        "\udfff",
        "<script>",
        "\U0001f600",
        "\u2028",
        "a" * 2000,
        "good film",
    ]
)
TEXTS = st.text(max_size=30) | ODD
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
WORDS = st.lists(
    st.sampled_from(["a", "good", "film", "zyx", ".", "\U0001f600"]), min_size=1, max_size=9
).map(" ".join)
SHAPES = st.one_of(
    st.fixed_dictionaries({"texts": st.lists(WORDS, min_size=1, max_size=6)}),
    st.fixed_dictionaries({"texts": st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4)}),
    st.fixed_dictionaries({"question": WORDS, "candidates": st.lists(WORDS, min_size=1, max_size=6)}),
)
"""Valid requests."""


@st.composite
def draw_request(draw):
    """Draw a request, mostly with something odd in it."""
    request = draw(SHAPES)
    position = draw(st.sampled_from(["nowhere", "text", "part", "more"]))
    if position == "text":
        name = draw(st.sampled_from(sorted(request)))
        values = list(request[name]) if isinstance(request[name], list) else [request[name]]
        values[draw(st.integers(0, len(values) - 1))] = draw(TEXTS | VALUES)
        request[name] = values if isinstance(request[name], list) else values[0]
    elif position == "part":
        request[draw(st.sampled_from([*sorted(request), "strict", "beam"]))] = draw(VALUES)
    elif position == "more":
        request[draw(NAMES)] = draw(VALUES | st.integers(-2, 40))
    return request


@st.composite
def draw_json(draw):
    """Draw JSON with NaN and lone surrogates in it, in some encoding, sometimes damaged."""
    text = json.dumps(draw(draw_request() | draw_request() | VALUES), ensure_ascii=draw(st.booleans()))
    body = text.encode(draw(st.sampled_from(["utf-8"] * 6 + ["utf-16", "utf-32"])), "surrogatepass")
    if draw(st.integers(0, 3)):
        return body
    at = draw(st.integers(0, len(body)))
    end = draw(st.integers(at, len(body)))
    return body[:at] + draw(st.binary(max_size=6)) + body[end:]


@st.composite
def draw_nested(draw):
    """Draw deeply nested brackets that are not closed."""
    opening = draw(st.sampled_from([b"[", b'{"texts":', b'{"texts":[', b"[{"]))
    return opening * draw(st.integers(1, 5000)) + draw(st.binary(max_size=4))


def draw_bodies():
    """Draw a path, a body and its content type."""
    kinds = st.sampled_from(["application/json"] * 8 + ["", "text/plain", "application/json;charset=x"])
    return st.tuples(st.sampled_from(PATHS), draw_json() | draw_nested() | st.binary(max_size=200), kinds)


def make_body_sender(folder):
    """Serve a model in this process; return a function that sends a request and returns the status."""
    server = start_server(folder)
    return lambda request: try_request(server.ask, request)


def try_request(ask, request):
    """Send a request by `ask`, check the form of its answer, and return the status."""
    path, body, kind = request
    status, headers, content = ask(path, body, {"Content-Type": kind})
    assert status in STATUSES, (status, request, content)
    assert headers["Content-Type"] == "application/json"
    answer = json.loads(content, parse_constant=refuse_constant)
    if status != 200:
        assert answer.keys() == {"error"}
        assert answer["error"].keys() == {"type", "message"}
        assert all(isinstance(value, str) and value for value in answer["error"].values())
    return status


def refuse_constant(name):
    raise AssertionError(f"{name} in an answer")
