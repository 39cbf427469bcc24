"""Export a model as an ONNX file for texts of any number and length, and compare its scores with PyTorch's.

The exporter unrolls a Python loop, for one length. Here the loop over the words is a scan, which stays one
operation of the graph. Scan is a private name of PyTorch, used in this file only.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nse
from nse.errors import InputError, RunError, explain_errors
from nse.files import check_writable, open_replacement
from nse.inference import folder
from nse.inference.inputs import stack_rows
from nse.inference.model import Model
from nse.inference.weights import compute_digest
from nse.nn.encoder import NSE
from nse.nn.sentence_encoder import take_last
from nse.ops.step import apply_gates
from nse.ops.types import Memory, make_mask

PACKAGES = ("onnx", "onnxscript", "onnxruntime")  # of the extra `onnx`
OPSET = 18  # native to the exporter, which converts others from it; older runtimes know it too
TOLERANCE = 1e-4  # difference of a score from PyTorch's, relative to the largest score if that is above 1
MAX_BYTES = 2**31 - 2**20  # of weights: an ONNX file holds at most 2 GB
SIZES = ((1, 1), (2, 3), (5, 17), (9, 41))  # batch size and longest text of the compared batches
InputNames = dict[str, tuple[str, ...]]  # names of the inputs, and of the dimensions of each


def to_onnx(model: Model | str | Path, file: Path) -> dict[str, Any]:
    """Export a classifier or a ranker as an ONNX file, with its vocabulary in a second file.

    Args:
        model: Model, or a name for `nse.load`.
        file: Path of the ONNX file; for `a.onnx` the vocabulary is `a.vocabulary.txt`. Existing files are
            replaced after the new ones are checked.

    Returns:
        file, vocabulary (its path), bytes, opset, and difference, the largest from a score of PyTorch.

    Raises:
        InputError: A package is missing, or the model translates or is too large.
        RunError: The file cannot be written, or its scores are not those of PyTorch.
    """
    check_packages()
    vocabulary_file = file.with_name(f"{file.stem}.vocabulary.txt")
    for path in (file, vocabulary_file):
        with explain_errors(f"{path} cannot be written"):
            check_writable(path)
    model = model if isinstance(model, Model) else folder.load(model)
    inputs = name_inputs(model)
    module, words = copy.deepcopy(model.module).cpu().eval(), model.vocabulary.to_bytes()
    content = export_graph(module, inputs, make_inputs(model, 3, 6), describe_model(model, words))
    batches = [make_inputs(model, *size, seed) for seed, size in enumerate(SIZES, start=1)]
    difference = check_scores(module, content, list(inputs), batches)
    write_files(file, content, vocabulary_file, words)
    report = {"file": str(file), "vocabulary": str(vocabulary_file), "bytes": len(content)}
    return {**report, "opset": OPSET, "difference": difference}


def check_packages() -> None:
    """Raise an `InputError` if a package is missing."""
    if missing := " and ".join(name for name in PACKAGES if find_spec(name) is None):
        raise InputError(f"export: needs {missing}: pip install 'neural-semantic-encoders[onnx]'")
    if find_spec("torch.onnx.ops") is None:
        raise InputError(f"export: needs a newer PyTorch than {torch.__version__}: pip install -U torch")


def name_inputs(model: Model) -> InputNames:
    """Name the inputs and their dimensions; raise an `InputError` for a model that cannot be exported."""
    if model.kind.translates:
        why = "translates, and beam search cannot be exported"
        raise InputError(f"model: {model.folder} {why}; export a model of sentences, pairs or documents")
    if (size := sum(tensor.nbytes for tensor in model.module.state_dict().values())) > MAX_BYTES:
        why = f"has {size:,} bytes of weights, and an ONNX file holds {MAX_BYTES:,}"
        raise InputError(f"model: {model.folder} {why}; export one with a smaller vocabulary")
    inputs: InputNames = {}
    for name in model.inputs:
        if model.kind.has_sentences:
            inputs |= {name: ("sentences", "words"), f"{name}_lengths": ("sentences",)}
            inputs |= {f"{name}_rows": ("batch", "most_sentences"), f"{name}_counts": ("batch",)}
        else:
            inputs |= {name: ("batch", f"{name}_words"), f"{name}_lengths": ("batch",)}
    return inputs


def describe_model(model: Model, words: bytes) -> dict[str, str]:
    """Return the metadata of the file: what a program needs to prepare inputs."""
    config = model.config
    metadata = {name: getattr(config, name) for name in ("kind", "task", "tokenizer")}
    metadata |= {name: json.dumps(getattr(config, name)) for name in ("labels", "pieces")}
    if model.kind.has_sentences:
        metadata["longest_sentence"] = str(config.model.max_words)
    metadata |= {"longest": str(model.max_words), "vocabulary_sha256": compute_digest(words)}
    return {"nse": nse.__version__, **metadata}


def make_inputs(model: Model, batch: int, max_length: int, seed: int = 0) -> list[Tensor]:
    """Make random texts: the first of `max_length` words, the others shorter, one empty.

    For a document model they are sentences of two documents: the first has all, the second only one.
    """
    generator, columns = torch.Generator().manual_seed(seed), []
    for column in range(len(model.inputs)):
        lengths = torch.randint(1, max_length + 1, (batch,), generator=generator).tolist()
        lengths[0] = max_length
        if batch > 2 and column == 0:
            lengths[-1] = 0
        ids = [torch.randint(1, len(model.vocabulary), (n,), generator=generator) for n in lengths]
        columns.append([tuple(text.tolist()) for text in ids])
        max_length = max_length // 2 + 2  # the two texts of a pair differ in length
    rows: list[Any] = list(zip(*columns, strict=True))
    if model.kind.has_sentences:
        rows = [(tuple(columns[0]),), (tuple(columns[0][:1]),)][:batch]
    return list(stack_rows(rows, model.kind.has_sentences).select(torch.arange(len(rows))).inputs)


def export_graph(
    module: nn.Module, inputs: InputNames, example: Sequence[Tensor], metadata: Mapping[str, str]
) -> bytes:
    """Export a module as the content of an ONNX file."""
    with ExitStack() as after, warnings.catch_warnings(action="ignore"), torch.no_grad():
        after.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)  # the exporter logs harmless warnings too
        program = torch.onnx.export(
            make_exportable(module),
            tuple(example),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=["scores"],
            dynamic_shapes=tuple(dict(enumerate(sizes)) for sizes in inputs.values()),
        )
        assert program is not None
        from onnx_ir.passes.common import ClearMetadataAndDocStringPass, RemoveUnusedNodesPass

        RemoveUnusedNodesPass()(program.model)  # the runtime would warn of them
        ClearMetadataAndDocStringPass()(program.model)  # they name folders of this machine
        program.model.metadata_props.clear()
        program.model.metadata_props.update(metadata)
        content: bytes = program.model_proto.SerializeToString()
    return content


@torch.no_grad()
def check_scores(
    module: nn.Module, content: bytes, names: Sequence[str], batches: Sequence[Sequence[Tensor]]
) -> float:
    """Compare the scores of onnxruntime with PyTorch's; return the largest difference."""
    import onnxruntime

    options, largest = onnxruntime.SessionOptions(), 0.0
    options.log_severity_level = 4  # errors are raised
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        arrays = [dict(zip(names, (tensor.numpy() for tensor in batch), strict=True)) for batch in batches]
        results = [torch.from_numpy(session.run(["scores"], inputs)[0]) for inputs in arrays]
    except Exception as error:  # onnxruntime has a dozen exception classes of its own
        reason = str(error).split("\n")[0]
        raise RunError(f"export: onnxruntime cannot run the file; nothing is written: {reason}") from error
    for batch, scores in zip(batches, results, strict=True):
        expected = module(*batch)
        difference = float((scores - expected).abs().max())
        tolerance = TOLERANCE * max(1.0, float(expected.abs().max()))
        if not (difference <= tolerance and scores.argmax(dim=-1).equal(expected.argmax(dim=-1))):
            texts = f"{len(scores)} texts of up to {batch[0].shape[1]} words; nothing is written"
            raise RunError(f"export: the scores differ from PyTorch's by {difference:.2g} for {texts}")
        largest = max(largest, difference)
    return largest


def write_files(file: Path, content: bytes, vocabulary_file: Path, words: bytes) -> None:
    """Write an ONNX file and its vocabulary; if one cannot be written, neither is changed."""
    with (
        explain_errors(f"{file} cannot be written", advice="; the old files are unchanged"),
        open_replacement(vocabulary_file) as vocabulary,
    ):
        vocabulary.write(words)
        vocabulary.flush()
        with open_replacement(file) as handle:
            handle.write(content)


def make_exportable(model: nn.Module) -> nn.Module:
    """Copy a model, with modules in which the loop over the words is one operation."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, NSE):
                setattr(parent, name, ScanNSE(module).eval())
            elif isinstance(module, nn.LSTM):
                setattr(parent, name, OnnxLSTM(module).eval())
    return model


class OnnxLSTM(nn.Module):
    """`nn.LSTM` over words [B, T, size] of which each layer is ONNX's LSTM operation."""

    def __init__(self, lstm: nn.LSTM):
        super().__init__()
        self.size, self.layers = lstm.hidden_size, nn.ModuleList()
        for weights in lstm.all_weights:
            i, f, g, o = range(4)  # PyTorch's order of the gates; ONNX has i, o, f, g
            W, R, *b = (w.detach().unflatten(0, (4, -1))[[i, o, f, g]].flatten(0, 1) for w in weights)
            self.layers.append(nn.ParameterList([W[None], R[None], torch.cat(b)[None]]))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """Return the outputs [B, T, k], without a state."""
        x = x.transpose(0, 1)
        for layer in self.layers:
            inputs, shape = (x, *layer.parameters()), (x.shape[0], 1, x.shape[1], self.size)
            options: dict[str, Any] = {"hidden_size": self.size}
            x = torch.onnx.ops.symbolic("LSTM", inputs, options, dtype=x.dtype, shape=shape).squeeze(1)
        return (x.transpose(0, 1),)


class ScanNSE(nn.Module):
    """`NSE` over words [B, T, k] in which the loop over the words is a scan.

    As in the torch backend, the read LSTM runs over all words first, and compose is folded into the write
    LSTM's input matrix. As in the reference, steps past a sequence's end are masked.
    """

    def __init__(self, nse: NSE):
        super().__init__()
        self.read, self.write, self.start, self.blank = OnnxLSTM(nse.read), nse.write, nse.start, nse.blank
        first, b = nse.get_weights().write[0], nse.compose.bias
        with torch.no_grad():
            self.folded = first.ih @ nse.compose.weight
            self.bias = F.linear(b, first.ih, first.bias_ih + first.bias_hh)

    def forward(self, x: Tensor, lengths: Tensor, *, shared: tuple[Memory, ...] = ()) -> Any:
        """Encode words of these lengths [B]; return those fields of an `Encoding` that models use."""
        from torch._higher_order_ops.scan import scan_op  # imports the compiler, which takes seconds
        from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

        words = Memory(x, lengths) if self.start is None else Memory(x, lengths).prepend(self.start)
        own = words if self.blank is None else words.prepend(self.blank)
        B, T, k = words.slots.shape
        starts = 0 if self.start is None else len(self.start)
        running = make_mask(lengths + starts, T).to(x.dtype)  # [B, T]
        slots = [(M, n) for M, n in (own, *shared) if n is not None]  # it never is
        masks = [make_mask(n, M.shape[1]).to(x.dtype) for M, n in slots]
        biases = [(1 - mask) * torch.finfo(x.dtype).min for mask in masks]
        M = [memory.slots * mask[..., None] for memory, mask in zip((own, *shared), masks, strict=True)]
        h, c = ([x.new_zeros(B, k) for _ in self.write.all_weights] for _ in range(2))
        onto_o, onto_m = self.folded.split([k, self.folded.shape[1] - k], dim=1)
        (o,) = self.read(words.slots)  # (eq. 1, 7), [B, T, k]
        gates = F.linear(o, onto_o, self.bias)
        inputs = [tensor.transpose(0, 1) for tensor in (o, gates, running[..., None])]
        state, constants = (h, c, M), (masks, biases, onto_m, self.write.all_weights)
        _, structure = tree_flatten((state, inputs, constants))

        def take_flat_step(*tensors: Tensor) -> list[Tensor]:
            after, output = take_step(*tree_unflatten(tensors, structure))
            return [*tree_leaves(after), output.clone()]  # scan refuses to return a tensor twice

        *after, outputs = scan_op(take_flat_step, tree_leaves(state), inputs, tuple(tree_leaves(constants)))
        outputs = outputs.transpose(0, 1) * running[..., None]
        return SimpleNamespace(
            outputs=outputs[:, starts:],
            last=take_last(outputs, lengths + starts),
            memory=own._replace(slots=after[len(h) + len(c)]),
        )


def take_step(state: Any, word: Any, constants: Any) -> tuple[Any, Tensor]:
    """Take one step of all sequences; return the new state and h [B, k]."""
    h, c, M = state  # h and c [B, k] of each layer of the write LSTM, and M [B, L, k] of each memory
    o, gates, running = word  # [B, k], its part of the first layer's gates [B, 4k], mask of sequences [B, 1]
    masks, biases, onto_m, (first, *upper) = constants  # mask of slots [B, L], and minus infinity elsewhere
    z = [
        (torch.bmm(M_j, o[..., None]).squeeze(-1) + bias).softmax(dim=-1) * mask * running
        for M_j, bias, mask in zip(M, biases, masks, strict=True)  # (eq. 2, 8, 10)
    ]
    m = [torch.bmm(z_j[:, None], M_j).squeeze(1) for z_j, M_j in zip(z, M, strict=True)]  # (eq. 3, 9, 11)
    gates = gates + F.linear(torch.cat(m, dim=-1), onto_m)  # (eq. 4, 12)
    states = [apply_gates(gates + F.linear(h[0], first[1]), c[0])]  # (eq. 5, 13)
    for (ih, hh, bias_ih, bias_hh), h_l, c_l in zip(upper, h[1:], c[1:], strict=True):
        gates = F.linear(states[-1][0], ih, bias_ih) + F.linear(h_l, hh, bias_hh)
        states.append(apply_gates(gates, c_l))
    h, c = (list(tensors) for tensors in zip(*states, strict=True))
    M = [
        M_j * (1 - z_j[..., None]) + h[-1][:, None] * z_j[..., None]  # (eq. 6, 14, 15)
        for z_j, M_j in zip(z, M, strict=True)
    ]
    return (h, c, M), h[-1]
