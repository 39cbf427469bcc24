"""A trained model as one ONNX file that takes any number of texts of any length, checked against PyTorch.

The exporter writes a Python loop out step by step, for one length. Here the loop over the words is a scan,
which stays one operation of the graph. PyTorch has it under a private name, in this file alone.
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
from nse.files import make_sure, open_replacement
from nse.inference import folder
from nse.inference.checksums import compute_digest
from nse.inference.inputs import limit, stack_rows
from nse.inference.model import Model
from nse.nn.encoder import NSE
from nse.nn.sentence_encoder import take_last
from nse.ops.step import apply_gates
from nse.ops.types import Memory, make_mask

NEEDED = ("onnx", "onnxscript", "onnxruntime")  # packages; all come with the extra
OPSET = 18  # what the exporter is written for: newer ones are made of it, and older runtimes know it
TOLERANCE = 1e-4  # how much a score may differ from PyTorch's; above 1 relative to the largest
LARGEST = 2**31 - 2**20  # bytes of weights: an ONNX file holds no more than 2 GB, graph and all
SIZES = ((1, 1), (2, 3), (5, 17), (9, 41))  # texts, and words of the longest, to check a file with
Names = dict[str, tuple[str, ...]]  # what a file takes, and what the dimensions of each are called


def to_onnx(model: Model | str | Path, file: Path) -> dict[str, Any]:
    """Write a classifier or a ranker as an ONNX file, and beside it its vocabulary.

    Args:
        model: A loaded model, or what `nse.load` takes: a shipped model's name, a run or a model folder.
        file: Where; of `a.onnx` the vocabulary is `a.vocabulary.txt`. Files that are there are replaced, once
            the new ones are made and checked.

    Returns:
        file, vocabulary (its file), bytes, opset, and difference, the largest of a score from PyTorch's.

    Raises:
        InputError: A package is missing, or the model translates or is too large.
        RunError: It cannot be written, or does not give PyTorch's scores.
    """
    refuse_missing()
    beside = file.with_name(f"{file.stem}.vocabulary.txt")
    for each in (file, beside):
        with explain_errors(f"{each} cannot be written"):
            make_sure(each)
    model = model if isinstance(model, Model) else folder.load(model)
    inputs = name_inputs(model)
    module, words = copy.deepcopy(model.module).cpu().eval(), model.vocabulary.to_bytes()
    content = export_graph(module, inputs, make_inputs(model, 3, 6), describe_model(model, words))
    batches = [make_inputs(model, *size, seed) for seed, size in enumerate(SIZES, start=1)]
    difference = check_scores(module, content, list(inputs), batches)
    write_files(file, content, beside, words)
    written = {"file": str(file), "vocabulary": str(beside), "bytes": len(content)}
    return {**written, "opset": OPSET, "difference": difference}


def refuse_missing() -> None:
    """Refuse to start without the packages."""
    if missing := " and ".join(name for name in NEEDED if find_spec(name) is None):
        raise InputError(f"export: needs {missing}: pip install 'neural-semantic-encoders[onnx]'")
    if find_spec("torch.onnx.ops") is None:
        raise InputError(f"export: needs a newer PyTorch than {torch.__version__}: pip install -U torch")


def name_inputs(model: Model) -> Names:
    """Name what the file takes, and the dimensions of each; a model that cannot be exported is refused."""
    if model.kind.translates:
        why = "translates, and its search for a translation is not in ONNX's reach here"
        raise InputError(f"model: {model.folder} {why}; export a model of sentences, pairs or documents")
    if (size := sum(tensor.nbytes for tensor in model.module.state_dict().values())) > LARGEST:
        why = f"has {size:,} bytes of weights, and an ONNX file holds {LARGEST:,}"
        raise InputError(f"model: {model.folder} {why}; export one that knows fewer words")
    inputs: Names = {}
    for name in model.inputs:
        if model.kind.has_sentences:
            inputs |= {name: ("sentences", "words"), f"{name}_lengths": ("sentences",)}
            inputs |= {f"{name}_rows": ("batch", "most_sentences"), f"{name}_counts": ("batch",)}
        else:
            inputs |= {name: ("batch", f"{name}_words"), f"{name}_lengths": ("batch",)}
    return inputs


def describe_model(model: Model, words: bytes) -> dict[str, str]:
    """Describe what a program needs to know beside the graph, for the file's metadata."""
    config = model.config
    told = {name: getattr(config, name) for name in ("kind", "task", "tokenizer")}
    told |= {name: json.dumps(getattr(config, name)) for name in ("labels", "pieces")}
    if model.kind.has_sentences:
        told["longest_sentence"] = str(config.model.max_words)
    longest = str(limit(model))  # words of a text that are read
    return {"nse": nse.__version__, **told, "longest": longest, "vocabulary_sha256": compute_digest(words)}


def make_inputs(model: Model, batch: int, most: int, seed: int = 0) -> list[Tensor]:
    """Make random texts: the first `most` words long, the others shorter, one empty.

    Of a document each is a sentence, and there are two documents: of all sentences, and of the first.
    """
    draw, columns = torch.Generator().manual_seed(seed), []
    for column in range(len(model.inputs)):
        lengths = torch.randint(1, most + 1, (batch,), generator=draw).tolist()
        lengths[0] = most
        if batch > 2 and column == 0:
            lengths[-1] = 0
        drawn = [torch.randint(1, len(model.vocabulary), (n,), generator=draw) for n in lengths]
        columns.append([tuple(ids.tolist()) for ids in drawn])
        most = most // 2 + 2  # the two texts of a pair differ in length
    rows: list[Any] = list(zip(*columns, strict=True))
    if model.kind.has_sentences:
        rows = [(tuple(columns[0]),), (tuple(columns[0][:1]),)][:batch]
    return list(stack_rows(rows, model.kind.has_sentences).select(torch.arange(len(rows))).inputs)


def export_graph(
    module: nn.Module, inputs: Names, example: Sequence[Tensor], metadata: Mapping[str, str]
) -> bytes:
    """Export a module as the content of an ONNX file."""
    with ExitStack() as after, warnings.catch_warnings(action="ignore"), torch.no_grad():
        after.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)  # the exporter warns of what is no error, in either way
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

        RemoveUnusedNodesPass()(program.model)  # of which the runtime would warn
        ClearMetadataAndDocStringPass()(program.model)  # which tell of this machine's folders
        program.model.metadata_props.clear()
        program.model.metadata_props.update(metadata)
        content: bytes = program.model_proto.SerializeToString()
    return content


@torch.no_grad()
def check_scores(
    module: nn.Module, content: bytes, names: Sequence[str], batches: Sequence[Sequence[Tensor]]
) -> float:
    """Compare the scores of a file, in onnxruntime, with PyTorch's; returns the largest difference."""
    import onnxruntime

    options, largest = onnxruntime.SessionOptions(), 0.0
    options.log_severity_level = 4  # what goes wrong is told by the error
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        arrays = [dict(zip(names, (each.numpy() for each in batch), strict=True)) for batch in batches]
        scores = [torch.from_numpy(session.run(["scores"], each)[0]) for each in arrays]
    except Exception as error:  # onnxruntime has a dozen kinds of its own
        reason = str(error).split("\n")[0]
        raise RunError(f"export: onnxruntime does not run the file; nothing is written: {reason}") from error
    for batch, found in zip(batches, scores, strict=True):
        wanted = module(*batch)
        difference = float((found - wanted).abs().max())
        allowed = TOLERANCE * max(1.0, float(wanted.abs().max()))
        if not (difference <= allowed and found.argmax(dim=-1).equal(wanted.argmax(dim=-1))):
            texts = f"{len(found)} texts of up to {batch[0].shape[1]} words; nothing is written"
            why = f"does not give PyTorch's scores: they differ by {difference:.2g} for {texts}"
            raise RunError(f"export: the file {why}")
        largest = max(largest, difference)
    return largest


def write_files(file: Path, content: bytes, beside: Path, words: bytes) -> None:
    """Write an ONNX file and its vocabulary; if one cannot be written, both are as they were."""
    with (
        explain_errors(f"{file} cannot be written", advice="; what was there is as it was"),
        open_replacement(beside) as vocabulary,
    ):
        vocabulary.write(words)
        vocabulary.flush()
        with open_replacement(file) as handle:
            handle.write(content)


def make_exportable(model: nn.Module) -> nn.Module:
    """Copy a model with its weights, and make every loop over words in it one operation."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, NSE):
                setattr(parent, name, ScanNSE(module).eval())
            elif isinstance(module, nn.LSTM):
                setattr(parent, name, WholeLSTM(module).eval())
    return model


class WholeLSTM(nn.Module):
    """An `nn.LSTM` over words [B, T, size] for the exporter: each layer is ONNX's own operation."""

    def __init__(self, lstm: nn.LSTM):
        super().__init__()
        self.size, self.layers = lstm.hidden_size, nn.ModuleList()
        for weights in lstm.all_weights:
            # Of the gates in, forget, cell and out, ONNX has the last one second.
            i, f, g, o = range(4)
            W, R, *b = (each.detach().unflatten(0, (4, -1))[[i, o, f, g]].flatten(0, 1) for each in weights)
            self.layers.append(nn.ParameterList([W[None], R[None], torch.cat(b)[None]]))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """Return the outputs [B, T, k]; there is no state."""
        x = x.transpose(0, 1)
        for layer in self.layers:
            given, shape = (x, *layer.parameters()), (x.shape[0], 1, x.shape[1], self.size)
            settings: dict[str, Any] = {"hidden_size": self.size}
            x = torch.onnx.ops.symbolic("LSTM", given, settings, dtype=x.dtype, shape=shape).squeeze(1)
        return (x.transpose(0, 1),)


class ScanNSE(nn.Module):
    """An `NSE` over words [B, T, k] for the exporter: the loop over words is one operation.

    As in `nse.ops.lean`, what the read LSTM says is made for all words at once, and compose is folded into
    the write LSTM's input matrix. As in `nse.ops.reference`, sequences that have ended are masked.
    """

    def __init__(self, nse: NSE):
        super().__init__()
        self.read, self.write, self.start, self.blank = WholeLSTM(nse.read), nse.write, nse.start, nse.blank
        first, b = nse.get_weights().write[0], nse.compose.bias
        with torch.no_grad():
            self.folded = first.ih @ nse.compose.weight
            self.bias = F.linear(b, first.ih, first.bias_ih + first.bias_hh)

    def forward(self, x: Tensor, lengths: Tensor, *, shared: tuple[Memory, ...] = ()) -> Any:
        """Encode words of these lengths [B]; returns what a sentence encoder takes of an `Encoding`."""
        from torch._higher_order_ops.scan import scan_op  # imports the compiler, which takes seconds
        from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

        words = Memory(x, lengths) if self.start is None else Memory(x, lengths).prepend(self.start)
        own = words if self.blank is None else words.prepend(self.blank)
        B, T, k = words.slots.shape
        starts = 0 if self.start is None else len(self.start)
        running = make_mask(lengths + starts, T).to(x.dtype)  # [B, T]
        slots = [
            make_mask(n, M.shape[1]).to(x.dtype) for M, n in (own, *shared) if n is not None
        ]  # it never is
        shut = [(1 - each) * torch.finfo(x.dtype).min for each in slots]
        M = [memory.slots * each[..., None] for memory, each in zip((own, *shared), slots, strict=True)]
        h, c = ([x.new_zeros(B, k) for _ in self.write.all_weights] for _ in range(2))
        onto_o, onto_m = self.folded.split([k, self.folded.shape[1] - k], dim=1)
        (o,) = self.read(words.slots)  # (eq. 1, 7), [B, T, k]
        given = [each.transpose(0, 1) for each in (o, F.linear(o, onto_o, self.bias), running[..., None])]
        state, fixed = (h, c, M), (slots, shut, onto_m, self.write.all_weights)
        _, form = tree_flatten((state, given, fixed))

        def flat_step(*tensors: Tensor) -> list[Tensor]:
            after, output = step(*tree_unflatten(tensors, form))
            return [*tree_leaves(after), output.clone()]  # no tensor may come out twice

        *after, outputs = scan_op(flat_step, tree_leaves(state), given, tuple(tree_leaves(fixed)))
        outputs = outputs.transpose(0, 1) * running[..., None]
        return SimpleNamespace(
            outputs=outputs[:, starts:],
            last=take_last(outputs, lengths + starts),
            memory=own._replace(slots=after[len(h) + len(c)]),
        )


def step(state: Any, word: Any, fixed: Any) -> tuple[Any, Tensor]:
    """Take one step of all sequences: return the state after it, and h [B, k]."""
    h, c, M = state  # h and c [B, k] of each layer of the write LSTM, and M [B, L, k] of each memory
    o, gates, running = word  # [B, k], its part of the first layer's gates [B, 4k], who runs [B, 1]
    slots, shut, onto_m, (first, *upper) = fixed  # which slots are real [B, L], and what shuts the others
    z = [
        (torch.bmm(M_j, o[..., None]).squeeze(-1) + shut_j).softmax(dim=-1) * slots_j * running
        for M_j, shut_j, slots_j in zip(M, shut, slots, strict=True)  # (eq. 2, 8, 10)
    ]
    m = [torch.bmm(z_j[:, None], M_j).squeeze(1) for z_j, M_j in zip(z, M, strict=True)]  # (eq. 3, 9, 11)
    gates = gates + F.linear(torch.cat(m, dim=-1), onto_m)  # (eq. 4, 12)
    states = [apply_gates(gates + F.linear(h[0], first[1]), c[0])]  # (eq. 5, 13)
    for (ih, hh, bias_ih, bias_hh), h_l, c_l in zip(upper, h[1:], c[1:], strict=True):
        gates = F.linear(states[-1][0], ih, bias_ih) + F.linear(h_l, hh, bias_hh)
        states.append(apply_gates(gates, c_l))
    h, c = (list(each) for each in zip(*states, strict=True))
    M = [
        M_j * (1 - z_j[..., None]) + h[-1][:, None] * z_j[..., None]  # (eq. 6, 14, 15)
        for z_j, M_j in zip(z, M, strict=True)
    ]
    return (h, c, M), h[-1]
