"""A model as an ONNX file: the same scores in onnxruntime, at any size, or no file at all."""

import errno
import hashlib
import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
import typer
from typer.testing import CliRunner

import nse
from nse import files
from nse.cli import serve as export_commands
from nse.errors import InputError, RunError
from nse.inference import folder as hub
from nse.inference import onnx as export
from nse.inference.kinds import KINDS
from nse.text.vocabulary import TargetVocabulary, Vocabulary

WORDS = [f"word{number}" for number in range(20)]
TASKS = {"sentence": "sst", "pair": "snli", "document": "documents", "translation": "translation"}
SIZES = [(3, 6), (1, 1), (9, 57), (2, 30)]
"""Texts and words: those that a file is made with, and others."""

MODELS = {
    "sentence": ("sentence", {"starts": 2, "blanks": 1, "pool": "mean-max", "embedding_size": 4}),
    "as padded in the paper": ("sentence", {"padding": "paper", "max_words": 20, "directions": 2}),
    "ranker": ("pair", {"encoder": "mma", "attention": "paper", "word_overlap": True}),
    "read again": ("pair", {"encoder": "bow", "attention": "aligned", "reader": "nse", "max_words": 40}),
    "lstm": ("pair", {"encoder": "lstm", "directions": 2, "layers": 2, "pool": "max"}),
    "document": ("document", {"encoder": "nse", "reader": "lstm", "layers": 2, "max_words": 25}),
}
READERS = {"sentence": 1, "as padded in the paper": 2, "ranker": 2, "read again": 2, "document": 1}
"""How many texts are read by an NSE, in each direction."""

INPUTS = {
    "sentence": {"sentence": ("batch", "sentence_words"), "sentence_lengths": ("batch",)},
    "pair": {
        "premise": ("batch", "premise_words"),
        "premise_lengths": ("batch",),
        "hypothesis": ("batch", "hypothesis_words"),
        "hypothesis_lengths": ("batch",),
    },
    "ranker": {
        "question": ("batch", "question_words"),
        "question_lengths": ("batch",),
        "answer": ("batch", "answer_words"),
        "answer_lengths": ("batch",),
    },
    "document": {
        "document": ("sentences", "words"),
        "document_lengths": ("sentences",),
        "document_rows": ("batch", "most_sentences"),
        "document_counts": ("batch",),
    },
}


def saved(folder, kind="pair", labels=3, **model):
    """A model folder of large random weights."""
    settings, build = KINDS[kind].config, KINDS[kind].module
    sizes = {"size": 6, "init_range": 1.0, **({"hidden": 4} if kind in ("sentence", "pair") else {})}
    config = hub.ModelConfig(
        kind=kind,
        task=TASKS[kind] if labels > 1 else "wikiqa",
        labels=[] if kind == "translation" else [f"label{number}" for number in range(labels)],
        tokenizer="whitespace",
        model=settings(**sizes, **model),
    )
    vocabulary = Vocabulary(WORDS)
    target = TargetVocabulary(WORDS) if kind == "translation" else None
    made = build(config.model, len(vocabulary), len(target or config.labels))
    if "rarity" in made.state_dict():
        made.rarity.uniform_(0.5, 2.0)
    hub.save(folder, made, config, vocabulary, {}, target)
    return folder


def given(kind, batch, words):
    """Inputs of random words, the padding too; some texts are shorter, one may be empty."""
    result = []
    for most in (words, words // 3 + 1)[: 2 if kind == "pair" else 1]:
        lengths = torch.randint(1, most + 1, (batch,))
        lengths[0] = most
        lengths[1:2] = 0
        result += [torch.randint(1, len(WORDS) + 2, (batch, most)), lengths]
    if kind == "document":  # of two, one has every other sentence
        counts = torch.tensor([batch, (batch + 1) // 2])
        result += [torch.stack([torch.arange(batch), torch.arange(batch) * 2 % batch]), counts]
    return result


def asked(file, inputs):
    """What onnxruntime says; inputs by their names or in the file's order."""
    session = onnxruntime.InferenceSession(file)
    if not isinstance(inputs, dict):
        inputs = dict(zip([each.name for each in session.get_inputs()], inputs, strict=True))
    return torch.from_numpy(session.run(["scores"], {name: each.numpy() for name, each in inputs.items()})[0])


def nodes(graph):
    """The operations of a graph and of those inside it, and how often they are there."""
    result = Counter(node.op_type for node in graph.node)
    for node in graph.node:
        result += sum((nodes(each.g) for each in node.attribute if each.HasField("g")), Counter())
    return result


def dimensions(values):
    """Names or numbers of the dimensions of inputs or outputs."""
    return {
        each.name: tuple(d.dim_param or d.dim_value for d in each.type.tensor_type.shape.dim)
        for each in values
    }


@pytest.mark.parametrize("name", MODELS)
def test_an_onnx_file_gives_the_scores_of_pytorch_at_any_size(name, tmp_path, monkeypatch, capfd):
    kind, model = MODELS[name]
    folder = saved(tmp_path / "model", kind, labels=1 if name == "ranker" else 3, **model)
    file = tmp_path / "model.onnx"
    export.to_onnx(folder, file)
    monkeypatch.setenv("NSE_BACKEND", "reference")
    eager, rows = hub.load(folder).module, []
    for size in SIZES:
        inputs = given(kind, *size)
        with torch.no_grad():
            wanted = eager(*inputs)
        torch.testing.assert_close(asked(file, inputs), wanted, atol=1e-5, rtol=1e-5)
        rows.append(wanted)
    assert torch.cat(rows).std(dim=0).min() > 0.01  # the texts matter
    assert capfd.readouterr() == ("", "")  # nor has onnxruntime anything to say of the file
    # Six words were read when it was made: a loop that was written out would have six times as many.
    graph, scans = onnx.load(file).graph, READERS.get(name, 0)
    assert (nodes(graph)["Scan"], nodes(graph)["Tanh"]) == (scans, 2 * scans * model.get("layers", 1))
    assert dimensions(graph.output) == {"scores": ("batch", 1 if name == "ranker" else 3)}
    assert dimensions(graph.input) == INPUTS[name if name == "ranker" else kind]


def command(*words):
    """Run the command."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(export_commands.export)
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_metadata_has_what_a_program_needs_and_no_local_paths(tmp_path):
    folder, file = (
        saved(tmp_path / "model", encoder="bow", max_words=7),
        tmp_path / "new" / "folder" / "a.b.onnx",
    )
    answer = command(folder, "--onnx", file, "--json")
    assert (answer.exit_code, answer.stderr) == (0, "")
    told = json.loads(answer.stdout)
    words = file.parent / "a.b.vocabulary.txt"
    assert told | {"difference": 0} == {
        "file": str(file),
        "vocabulary": str(words),
        "bytes": file.stat().st_size,
        "opset": 18,
        "difference": 0,
    }
    assert 0 <= told["difference"] < 1e-4
    assert sorted(file.parent.iterdir()) == [file, words]
    assert words.read_bytes() == (folder / "vocabulary.txt").read_bytes()
    assert onnxruntime.InferenceSession(file).get_modelmeta().custom_metadata_map == {
        "nse": nse.__version__,
        "kind": "pair",
        "task": "snli",
        "labels": '["label0", "label1", "label2"]',
        "tokenizer": "whitespace",
        "pieces": "false",
        "longest": "7",
        "vocabulary_sha256": hashlib.sha256(words.read_bytes()).hexdigest(),
    }
    for place in (tmp_path, Path(export.__file__).parent, Path(torch.__file__).parent):
        assert str(place).encode() not in file.read_bytes()


def test_the_export_command_prints_one_line(tmp_path, monkeypatch):
    folder, file = saved(tmp_path / "model"), tmp_path / "model.onnx"
    monkeypatch.setattr(export, "export_graph", lambda *given: b"graph" * 1000)
    monkeypatch.setattr(export, "check_scores", lambda *given: 0.00000123)
    answer = command(folder, "--onnx", file)
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout == f"{file}: 5,000 bytes, scores within 1.2e-06 of PyTorch's\n"
    assert file.read_bytes() == b"graph" * 1000


def test_a_file_with_wrong_scores_is_not_written(tmp_path, monkeypatch):
    folder, file = saved(tmp_path / "model", encoder="bow"), tmp_path / "model.onnx"
    file.write_bytes(b"the old one")
    right = export.make_exportable

    def wrong(model):
        made = right(model)
        with torch.no_grad():
            made.head[3].bias += torch.tensor([0.0, 0.0, 0.02])
        return made

    monkeypatch.setattr(export, "make_exportable", wrong)
    with pytest.raises(RunError, match=r"the scores differ from PyTorch's by 0\.02 for 1 text"):
        export.to_onnx(folder, file)
    monkeypatch.setattr(export, "export_graph", lambda *given: b"no graph")
    with pytest.raises(RunError, match="onnxruntime cannot run the file; nothing is written"):
        export.to_onnx(folder, file)
    assert file.read_bytes() == b"the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.onnx"]


@pytest.mark.parametrize("old", [None, b"the old words"])
def test_a_full_disk_leaves_the_old_files(old, tmp_path, monkeypatch):
    folder, file = saved(tmp_path / "model"), tmp_path / "model.onnx"
    words = tmp_path / "model.vocabulary.txt"
    file.write_bytes(b"the old one")
    if old:
        words.write_bytes(old)

    def full(place):
        if place == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        return files.open_replacement(place)

    monkeypatch.setattr(export, "export_graph", lambda *given: b"a graph")
    monkeypatch.setattr(export, "check_scores", lambda *given: 0.0)
    monkeypatch.setattr(export, "open_replacement", full)
    with pytest.raises(RunError, match=r"model\.onnx cannot be written: No space left on device"):
        export.to_onnx(folder, file)
    assert file.read_bytes() == b"the old one"
    assert (words.read_bytes() if words.exists() else None) == old


def test_an_unwritable_file_is_refused_before_computing(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "load", lambda *all: pytest.fail("the model was loaded"))
    (tmp_path / "file").touch()
    (tmp_path / "taken.vocabulary.txt").mkdir()
    for file in (tmp_path, tmp_path / "file" / "model.onnx", tmp_path / "taken.onnx"):
        with pytest.raises(
            RunError, match=r"cannot be written: (Is a directory|Not a directory|File exists)"
        ):
            export.to_onnx("snli", file)


def test_models_that_cannot_be_exported_are_refused_by_name(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"translator translates.*sentences, pairs or documents"):
        export.to_onnx(saved(tmp_path / "translator", "translation"), tmp_path / "model.onnx")
    monkeypatch.setattr(export, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match=r"large has [\d,]+ bytes of weights.*holds 1,000"):
        export.to_onnx(saved(tmp_path / "large"), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("onnxscript", r"needs onnxscript: pip install 'neural-semantic-encoders\[onnx\]'"),
        ("torch.onnx.ops", "needs a newer PyTorch than .*: pip install -U torch"),
    ],
)
def test_an_error_names_the_missing_package_and_how_to_install_it(missing, told, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(InputError, match=told):
        export.to_onnx("snli", tmp_path / "model.onnx")
