"""The description of the server is true, and says what every error looks like."""

import re

import jsonschema
import pytest

from nse.serve.schemas import DESCRIPTIONS, WORD, make_visible_pattern
from nse.text import moses
from serve.inside import inside
from serve.running import told
from small_models import save_document_model, save_ranking_model, save_sentence_model, save_translator

LETTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize(
    "make", [save_sentence_model, save_ranking_model, save_translator, save_document_model]
)
def test_answers_have_the_form_that_is_described(tmp_path, make):
    with inside(make(tmp_path / "mine")) as server:
        described = told(server.ask("/openapi.json"))
        for path, operations in described["paths"].items():
            for method, operation in operations.items():
                if method == "post":
                    content = operation["requestBody"]["content"]["application/json"]
                    asks = [example["value"] for example in content["examples"].values()]
                    for ask in asks:
                        jsonschema.validate(ask, content["schema"])
                else:
                    asks = [None]
                if path == "/metrics":
                    continue
                schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
                for ask in asks:
                    whole = {**schema, "components": described["components"]}
                    jsonschema.validate(told(server.ask(path, ask)), whole)


def test_every_status_of_a_question_is_described(tmp_path):
    with inside(save_sentence_model(tmp_path / "mine")) as server:
        described = told(server.ask("/openapi.json"))
        for path in ("/v1/predict", "/v1/encode", "/v1/trace"):
            responses = described["paths"][path]["post"]["responses"]
            wanted = {"200", *(str(status) for status in DESCRIPTIONS if status != 401)}
            assert responses.keys() == wanted
            assert "Retry-After" in responses["429"]["headers"]
            for status in wanted - {"200"}:
                schema = responses[status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Failure"}
        assert "503" in described["paths"]["/health/ready"]["get"]["responses"]


def test_what_counts_as_a_word_is_what_python_does_not_strip():
    assert [letter for letter in LETTERS if bool(re.search(WORD, letter)) != bool(letter.strip())] == ["\0"]


def test_what_counts_as_a_word_of_a_translator_is_what_moses_does_not_leave_out():
    seen = re.compile(make_visible_pattern())
    assert [
        letter for letter in LETTERS if bool(seen.search(letter)) != bool(moses.normalize_spaces(letter))
    ] == []
    assert not seen.search("\x9b\u200b \U000e0001\xad")
