"""/openapi.json describes requests, answers and errors."""

import re

import jsonschema
import pytest

from nse.serve.schemas import DESCRIPTIONS, WORD, make_visible_pattern
from nse.text import moses
from serve.inside import serve_inside
from serve.running import read_json
from small_models import save_document_model, save_ranking_model, save_sentence_model, save_translator

LETTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize(
    "make", [save_sentence_model, save_ranking_model, save_translator, save_document_model]
)
def test_answers_fit_their_schemas(tmp_path, make):
    with serve_inside(make(tmp_path / "mine")) as server:
        openapi = read_json(server.ask("/openapi.json"))
        for path, operations in openapi["paths"].items():
            for method, operation in operations.items():
                if method == "post":
                    content = operation["requestBody"]["content"]["application/json"]
                    bodies = [example["value"] for example in content["examples"].values()]
                    for body in bodies:
                        jsonschema.validate(body, content["schema"])
                else:
                    bodies = [None]
                if path == "/metrics":
                    continue
                schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
                for body in bodies:
                    whole = {**schema, "components": openapi["components"]}
                    jsonschema.validate(read_json(server.ask(path, body)), whole)


def test_every_error_status_is_described(tmp_path):
    with serve_inside(save_sentence_model(tmp_path / "mine")) as server:
        openapi = read_json(server.ask("/openapi.json"))
        for path in ("/v1/predict", "/v1/encode", "/v1/trace"):
            responses = openapi["paths"][path]["post"]["responses"]
            expected = {"200", *(str(status) for status in DESCRIPTIONS if status != 401)}
            assert responses.keys() == expected
            assert "Retry-After" in responses["429"]["headers"]
            for status in expected - {"200"}:
                schema = responses[status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Failure"}
        assert "503" in openapi["paths"]["/health/ready"]["get"]["responses"]


def test_word_characters_are_those_that_python_does_not_strip():
    assert [letter for letter in LETTERS if bool(re.search(WORD, letter)) != bool(letter.strip())] == ["\0"]


def test_word_characters_of_a_translator_are_those_that_moses_keeps():
    pattern = re.compile(make_visible_pattern())
    assert [
        letter for letter in LETTERS if bool(pattern.search(letter)) != bool(moses.normalize_spaces(letter))
    ] == []
    assert not pattern.search("\x9b\u200b \U000e0001\xad")
