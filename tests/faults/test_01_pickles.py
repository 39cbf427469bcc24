"""Fault 1: a weights file that is a pickle, or a .pt renamed: refused, and never opened."""

import ast
import io
import pickle
from pathlib import Path

import pytest
import torch

import nse
from faults.made_models import get_refusal, save_model, shell, write_sums
from nse.errors import ModelError
from nse.inference import folder as hub

SOURCE = Path(nse.__file__).parent


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def archive(bomb, **options):
    buffer = io.BytesIO()
    torch.save({"head.0.bias": bomb}, buffer, **options)
    return buffer.getvalue()


FORMS = {
    "pickle": lambda bomb: pickle.dumps(bomb),
    "old pickle": lambda bomb: pickle.dumps(bomb, protocol=0),
    "pt": lambda bomb: archive(bomb),
    "old pt": lambda bomb: archive(bomb, _use_new_zipfile_serialization=False),
}


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "mine")
    return tmp_path / "mine"


@pytest.mark.parametrize("form", FORMS)
def test_a_pickle_named_like_weights_is_refused_and_not_executed(form, folder, tmp_path):
    marker = tmp_path / "marker"
    content = FORMS[form](Bomb(marker))
    (folder / "model.safetensors").write_bytes(content)
    expected = "is not a whole safetensors file" if form == "old pickle" else "is a pickle or a .pt file"
    with pytest.raises(ModelError, match=expected):
        hub.load(folder)
    assert not marker.exists()
    # Had it been opened, this is what it would have done.
    if "pt" in form:
        torch.load(io.BytesIO(content), weights_only=False)
    else:
        pickle.loads(content)
    assert marker.exists()


def test_weights_that_start_like_a_pickle_are_loaded(folder):
    """The size of the head comes first: one in thirty-two begins with 0x80, as every pickle does."""
    file = folder / "model.safetensors"
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    longer = size + (0x80 - size) % 256
    head = content[8 : 8 + size].ljust(longer)
    file.write_bytes(longer.to_bytes(8, "little") + head + content[8 + size :])
    assert file.read_bytes()[:1] == pickle.dumps(0)[:1]
    write_sums(folder)
    assert hub.load(folder).config.task == "logic"


def test_the_command_refuses_a_pickle_in_one_line(folder, tmp_path):
    marker = tmp_path / "marker"
    (folder / "model.safetensors").write_bytes(FORMS["pt"](Bomb(marker)))
    message = get_refusal(shell("evaluate", folder, cwd=tmp_path))
    assert f"{folder}/model.safetensors is a pickle or a .pt file, not safetensors" in message
    assert "get the model as safetensors" in message
    assert not marker.exists()


@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "weights.pkl"])
def test_a_missing_weights_file_is_not_replaced_by_a_pickle(name, folder, tmp_path):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(FORMS["pt"](Bomb(tmp_path / "marker")))
    with pytest.raises(ModelError, match=r"model\.safetensors is missing"):
        hub.load(folder)
    assert not (tmp_path / "marker").exists()


COPIES = {"inference/model.py": ["pickle.dumps", "pickle.loads"], "serve/worker.py": ["pickle.dumps"]}
"""A model in memory is copied, and sent to the server's own processes, as a pickle; no file is one."""


def test_no_file_of_the_package_loads_pickles():
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                allowed = {"pickle"} if file.relative_to(SOURCE).as_posix() in COPIES else set()
                assert not ({"pickle", "dill", "joblib"} - allowed) & set(names), file
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("pickle."):
                assert ast.unparse(node.func) in COPIES[file.relative_to(SOURCE).as_posix()], file
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert options.get("weights_only") == "True", f"{file}: {ast.unparse(node)}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load"):
                options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert options.get("allow_pickle") == "False", f"{file}: {ast.unparse(node)}"
