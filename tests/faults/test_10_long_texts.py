"""Fault 10, on the command line: a text of more words than are read is cut and said so, or refused."""

import json

from faults.made_models import get_refusal, save_model, shell


def test_a_long_text_is_truncated_and_the_answer_says_so(tmp_path):
    save_model(tmp_path / "mine", model={"max_words": 5})
    answer = shell("predict", "mine", "dogs " * 9, "some dogs", "--json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    row = json.loads(answer.stdout)
    assert (row["words"], row["cut"]) == (7, 4)


def test_a_long_text_is_refused_if_strict(tmp_path):
    save_model(tmp_path / "mine", model={"max_words": 5})
    message = get_refusal(shell("predict", "mine", "dogs " * 9, "some dogs", "--strict", cwd=tmp_path))
    assert "premise 1 has 9 words and the model reads 5: shorten it" in message


def test_a_word_of_ten_megabytes_in_a_file_is_refused(tmp_path):
    save_model(tmp_path / "mine", kind="sentence", task="sst")
    (tmp_path / "long.txt").write_text("dogs\n" + "d" * 10_000_000 + "\ndogs bark\n")
    message = get_refusal(shell("predict", "mine", "--file", "long.txt", "--out", "out.jsonl", cwd=tmp_path))
    assert "long.txt: line 2: is longer than 1,048,576 bytes" in message
    assert not (tmp_path / "out.jsonl").exists()
