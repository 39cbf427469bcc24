"""Settings and API keys that are refused before the server starts."""

import os
import re

import pytest
from typer.testing import CliRunner

from nse.cli import main as cli
from nse.cli import serve as serve_commands
from nse.errors import InputError
from nse.serve import server
from nse.serve.settings import MIN_BODY_LIMIT, ApiKeys, Settings, read_keys

KEY = "correct-horse-battery"


def read_refusal(*words):
    """Return the message of a refused command, which loads nothing."""
    answer = CliRunner().invoke(cli.app, ["serve", "no-such-model", *words])
    assert isinstance(answer.exception, InputError), answer.output
    return str(answer.exception)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max-batch", "0"),
        ("max-queue", "0"),
        ("max-chars", "-1"),
        ("max-texts", "0"),
        ("timeout", "0"),
        ("timeout", "nan"),
        ("timeout", "inf"),
        ("max-wait-ms", "-1"),
        ("max-wait-ms", "nan"),
        ("max-wait-ms", "30000"),
    ],
)
def test_invalid_limits_are_refused_by_name(option, value):
    message = read_refusal(f"--{option}", value)
    assert message.startswith(f"--{option}: expected ")
    assert re.search(r"got \S+$", message)


def test_settings_that_contradict_each_other_are_refused():
    assert "--max-wait-ms: expected 0 or more, and less than the timeout (0.5 s)" in read_refusal(
        "--timeout", "0.5", "--max-wait-ms", "600"
    )
    assert "--log-texts: texts are logged in the access log, which is off" in read_refusal(
        "--log-texts", "--no-access-log"
    )


def test_the_options_of_the_command_set_the_settings(monkeypatch):
    calls = []
    monkeypatch.setattr("nse.load", lambda name, device, precision: name)
    monkeypatch.setattr(server, "serve", lambda *args: calls.append(args) or 143)
    assert CliRunner().invoke(cli.app, ["serve", "mine"]).exit_code == 143
    assert calls[0][:2] == ("mine", Settings())
    options = {"batch": "3", "wait-ms": "1.5", "queue": "5", "chars": "7", "texts": "9"}
    words = [word for name, value in options.items() for word in (f"--max-{name}", value)]
    words += ["--timeout", "11", "--workers", "2", "--log-texts", "--host", "0.0.0.0", "--port", "0"]
    CliRunner().invoke(cli.app, ["serve", "mine", *words])
    sizes = {f"max_{name.replace('-', '_')}": float(value) for name, value in options.items()}
    assert calls[1][1] == Settings(
        "0.0.0.0", 0, **sizes, timeout=11.0, workers=2, access_log=True, log_texts=True
    )


def test_the_body_limit_grows_with_the_text_limit():
    assert Settings().max_body == MIN_BODY_LIMIT
    assert Settings(max_chars=100_000).max_body > 12 * 100_000


def test_missing_libraries_are_reported_with_the_command_that_installs_them(monkeypatch):
    for missing in ("starlette", "pydantic", "httptools"):
        monkeypatch.setattr(
            serve_commands, "find_spec", lambda name, gone=missing: None if name == gone else 1
        )
        assert "pip install 'neural-semantic-encoders[serve]'" in read_refusal()


def test_keys_are_read_from_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# for the web page\n\n  {KEY}\nanother-key-0123456789\n")
    keys = read_keys(file)
    assert keys.allow(KEY.encode())
    assert keys.allow(b"another-key-0123456789")
    for wrong in (b"", b"# for the web page", KEY[:-1].encode(), KEY.upper().encode(), b"\xff" * 20):
        assert not keys.allow(wrong)
    assert KEY not in repr(vars(keys))


@pytest.mark.skipif(os.name != "posix", reason="files have no such modes there")
@pytest.mark.parametrize(
    ("mode", "warns"),
    [(0o600, False), (0o400, False), (0o640, True), (0o604, True), (0o660, True), (0o666, True)],
)
def test_a_key_file_that_others_can_read_gives_a_warning(tmp_path, monkeypatch, mode, warns):
    monkeypatch.setattr("nse.load", lambda name, device, precision: name)
    monkeypatch.setattr(server, "serve", lambda *args: 0)
    file = tmp_path / "keys"
    file.write_text(KEY)
    file.chmod(mode)
    answer = CliRunner().invoke(cli.app, ["serve", "mine", "--api-key-file", str(file)])
    assert answer.exit_code == 0  # only a warning
    line = f"nse: other users can read or change {file}; type: chmod 600 {file}\n"
    assert answer.stderr == (line if warns else "")


def test_every_key_is_compared_in_constant_time(monkeypatch):
    calls = []
    monkeypatch.setattr("hmac.compare_digest", lambda one, other: calls.append(len(other)) or one == other)
    keys = ApiKeys(["a" * 16, "b" * 30, "c" * 90])
    assert keys.allow(b"a" * 16)
    assert calls == [32, 32, 32]


@pytest.mark.parametrize(
    ("content", "message_part"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "cannot be read: is not UTF-8"),
        (b"", "contains no key; make one: python -c"),
        (b"# nothing\n\n", "contains no key"),
        (b"long-enough-for-a-key\nshort\n", "line 2: a key needs 16 characters"),
        (b"two words are no key for a header\n", "line 1: use ASCII without spaces"),
        ("schlüssel-sind-lang-genug\n".encode(), "line 1: use ASCII without spaces"),
    ],
)
def test_unusable_keys_are_refused(tmp_path, content, message_part):
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    message = read_refusal("--api-key-file", str(file))
    assert message_part in message
    assert message.startswith(f"--api-key-file: {file}: ")
    assert "short\n" not in message
