"""Requests that nobody should send, made by hypothesis, and what may come of them."""

import json

from hypothesis import strategies as st

from serve.inside import begun

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
"""What questions look like."""


@st.composite
def nearly(draw):
    """A question, with something odd in it most of the time."""
    found = draw(SHAPES)
    place = draw(st.sampled_from(["nowhere", "text", "part", "more"]))
    if place == "text":
        name = draw(st.sampled_from(sorted(found)))
        some = list(found[name]) if isinstance(found[name], list) else [found[name]]
        some[draw(st.integers(0, len(some) - 1))] = draw(TEXTS | VALUES)
        found[name] = some if isinstance(found[name], list) else some[0]
    elif place == "part":
        found[draw(st.sampled_from([*sorted(found), "strict", "beam"]))] = draw(VALUES)
    elif place == "more":
        found[draw(NAMES)] = draw(VALUES | st.integers(-2, 40))
    return found


@st.composite
def written(draw):
    """A value as JSON, with NaN and half characters in it, in some encoding, and sometimes broken."""
    text = json.dumps(draw(nearly() | nearly() | VALUES), ensure_ascii=draw(st.booleans()))
    body = text.encode(draw(st.sampled_from(["utf-8"] * 6 + ["utf-16", "utf-32"])), "surrogatepass")
    if draw(st.integers(0, 3)):
        return body
    at = draw(st.integers(0, len(body)))
    end = draw(st.integers(at, len(body)))
    return body[:at] + draw(st.binary(max_size=6)) + body[end:]


@st.composite
def nested(draw):
    """More brackets than anybody closes."""
    opening = draw(st.sampled_from([b"[", b'{"texts":', b'{"texts":[', b"[{"]))
    return opening * draw(st.integers(1, 5000)) + draw(st.binary(max_size=4))


def bodies():
    """Requests: a path, a body, and what the body says that it is."""
    kinds = st.sampled_from(["application/json"] * 8 + ["", "text/plain", "application/json;charset=x"])
    return st.tuples(st.sampled_from(PATHS), written() | nested() | st.binary(max_size=200), kinds)


def asked(folder):
    """Serve a model in this process; gives a function from a request to the status of its answer."""
    server = begun(folder)
    return lambda request: try_request(server.ask, request)


def try_request(ask, request):
    """Send a request; gives the status, if the answer is one that may be.

    Args:
        ask: From a path, a body and headers to status, headers and content.
    """
    path, body, kind = request
    status, headers, content = ask(path, body, {"Content-Type": kind})
    assert status in STATUSES, (status, request, content)
    assert headers["Content-Type"] == "application/json"
    told = json.loads(content, parse_constant=refuse_constant)
    if status != 200:
        assert told.keys() == {"error"}
        assert told["error"].keys() == {"type", "message"}
        assert all(isinstance(value, str) and value for value in told["error"].values())
    return status


def refuse_constant(name):
    raise AssertionError(f"{name} in an answer")
