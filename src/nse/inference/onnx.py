"""A trained model as one ONNX file that takes any number of texts of any length, checked against PyTorch.

The exporter writes a Python loop out step by step, for one length. Here the loop over the words is a scan,
which stays one operation of the graph. PyTorch has it under a private name, in this file alone.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nse
from nse.errors import InputError, RunError, explain_errors
from nse.files import make_sure, write_bytes
from nse.inference import folder as hub
from nse.inference import inputs as reading
from nse.inference.model import Model
from nse.nn.encoder import NSE
from nse.nn.sentence_encoder import at_end
from nse.ops.step import apply_gates
from nse.ops.types import Memory, real

NEEDED = ("onnx", "onnxscript", "onnxruntime")
"""Packages; all come with the extra."""

OPSET = 18
"""What the exporter is written for: newer ones are made of it, and older runtimes know it."""

TOLERANCE = 1e-4
"""How much a score may differ from PyTorch's; where scores are above 1, relative to the largest."""

LARGEST = 2**31 - 2**20
"""Bytes of weights: an ONNX file holds no more than 2 GB, graph and all."""

SIZES = ((1, 1), (2, 3), (5, 17), (9, 41))
"""Texts, and words of the longest, with which a file is checked; none are those that it is made with."""


def to_onnx(model: Model | str | Path, file: Path) -> dict[str, Any]:
    """Write a classifier or a ranker as an ONNX file, and beside it its vocabulary.

    Args:
        model: What `hub.load` gave or takes: a shipped model's name, a run or a model folder.
        file: Where; `words_file` says where the vocabulary goes. Files that are there are replaced, once the
            new ones are made and checked.

    Returns:
        file, vocabulary (its file), bytes, opset, and difference, the largest of a score from PyTorch's.

    Raises:
        InputError: A package is missing, or the model translates or is too large.
        RunError: It cannot be written, or does not give PyTorch's scores.
    """
    refuse_missing()
    for each in (file, words_file(file)):
        with explain_errors(f"{each} cannot be written"):
            make_sure(each)
    loaded = model if isinstance(model, Model) else hub.load(model)
    names = inputs(loaded)
    refuse_large(loaded)
    loaded = loaded.with_module(copy.deepcopy(loaded.module).cpu().eval())
    words = loaded.vocabulary.to_bytes()
    content = graph(loaded, names, {**about(loaded), "vocabulary_sha256": hashlib.sha256(words).hexdigest()})
    difference = checked(loaded, list(names), content)
    put(file, content, words)
    told = {"file": str(file), "vocabulary": str(words_file(file)), "bytes": len(content)}
    return {**told, "opset": OPSET, "difference": difference}


def words_file(file: Path) -> Path:
    """Where the vocabulary of an ONNX file lies: beside it."""
    return file.with_name(f"{file.stem}.vocabulary.txt")


def refuse_missing() -> None:
    """Refuse to start without the packages."""
    if missing := " and ".join(name for name in NEEDED if find_spec(name) is None):
        raise InputError(f"export: needs {missing}: pip install 'neural-semantic-encoders[onnx]'")
    if find_spec("torch.onnx.ops") is None:
        raise InputError(f"export: needs a newer PyTorch than {torch.__version__}: pip install -U torch")


def inputs(loaded: Model) -> dict[str, tuple[str, ...]]:
    """What the file takes, in the model's order: of each input its name, and the names of its dimensions."""
    if loaded.kind.translates:
        why = "translates, and its search for a translation is not in ONNX's reach here"
        raise InputError(f"model: {loaded.folder} {why}; export a model of sentences, pairs or documents")
    found = dict[str, tuple[str, ...]]()
    for name in loaded.inputs:
        if loaded.kind.has_sentences:
            found |= {name: ("sentences", "words"), f"{name}_lengths": ("sentences",)}
            found |= {f"{name}_rows": ("batch", "most_sentences"), f"{name}_counts": ("batch",)}
        else:
            found |= {name: ("batch", f"{name}_words"), f"{name}_lengths": ("batch",)}
    return found


def refuse_large(loaded: Model) -> None:
    """Refuse a model that does not fit one file, before anything is computed."""
    size = sum(tensor.nbytes for tensor in loaded.module.state_dict().values())
    if size > LARGEST:
        told = f"has {size:,} bytes of weights, and an ONNX file holds {LARGEST:,}"
        raise InputError(f"model: {loaded.folder} {told}; export one that knows fewer words")


def about(loaded: Model) -> dict[str, str]:
    """What a program needs to know beside the graph, for the file's metadata."""
    config = loaded.config
    longest = {"longest": reading.limit(loaded)}  # words of a text that are read
    if loaded.kind.has_sentences:
        longest["longest_sentence"] = config.model.longest
    return {
        "nse": nse.__version__,
        "kind": config.kind,
        "task": config.task,
        "labels": json.dumps(config.labels),
        "tokenizer": config.tokenizer,
        "pieces": json.dumps(config.pieces),
        **{name: str(words) for name, words in longest.items()},
    }


def graph(loaded: Model, names: dict[str, tuple[str, ...]], metadata: dict[str, str]) -> bytes:
    """The ONNX file of a model."""
    model = exportable(loaded.module)
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            model,
            tuple(made_up(loaded, 3, 6)),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=list(names),
            output_names=["scores"],
            dynamic_shapes=tuple(dict(enumerate(sizes)) for sizes in names.values()),
        )
        assert program is not None
        from onnx_ir.passes.common import ClearMetadataAndDocStringPass, RemoveUnusedNodesPass

        RemoveUnusedNodesPass()(program.model)  # of which the runtime would warn
        ClearMetadataAndDocStringPass()(program.model)  # which tell of this machine's folders
        program.model.metadata_props.clear()
        program.model.metadata_props.update(metadata)
        content: bytes = program.model_proto.SerializeToString()
    return content


@contextmanager
def quiet() -> Iterator[None]:
    """Let the exporter neither warn nor log what is no error."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for kind in (DeprecationWarning, FutureWarning, UserWarning):
                warnings.simplefilter("ignore", kind)
            yield
    finally:
        logging.disable(before)


def made_up(loaded: Model, batch: int, most: int, seed: int = 0) -> list[Tensor]:
    """Inputs of a model: so many random texts, the first `most` words long, the others shorter, one empty."""
    draw, found = torch.Generator().manual_seed(seed), list[Tensor]()
    for column in range(len(loaded.inputs)):
        lengths = torch.randint(1, most + 1, (batch,), generator=draw)
        lengths[0] = most
        if batch > 2 and column == 0:
            lengths[-1] = 0
        found += texts(loaded, lengths.tolist(), draw)
        most = most // 2 + 2  # the two texts of a pair differ in length
    return found


def texts(loaded: Model, lengths: Sequence[int], draw: torch.Generator) -> list[Tensor]:
    """Random texts of these numbers of words, as the model takes them; of a document each is a sentence."""
    ids = [tuple(torch.randint(1, len(loaded.vocabulary), (n,), generator=draw).tolist()) for n in lengths]
    if not loaded.kind.has_sentences:
        return reading.as_texts(ids).inputs
    documents = reading.as_documents([ids, ids[:1]][: len(ids)])  # all sentences, and the first alone
    return list(documents.select(torch.arange(len(documents.counts))).inputs)


@torch.no_grad()
def checked(loaded: Model, names: Sequence[str], content: bytes) -> float:
    """The largest difference between the scores of a file, in onnxruntime, and PyTorch's.

    Raises:
        RunError: It is too large, a label is another, or the file does not run.
    """
    batches = [made_up(loaded, *size, seed) for seed, size in enumerate(SIZES, start=1)]
    largest = 0.0
    for given, found, (batch, most) in zip(batches, run(content, names, batches), SIZES, strict=True):
        wanted = loaded.module(*given)
        difference = float((found - wanted).abs().max())
        allowed = TOLERANCE * max(1.0, float(wanted.abs().max()))
        if not (difference <= allowed and found.argmax(dim=-1).equal(wanted.argmax(dim=-1))):
            raise RunError(
                f"export: the file does not give PyTorch's scores: they differ by {difference:.2g} for "
                f"{batch} texts of up to {most} words; nothing is written"
            )
        largest = max(largest, difference)
    return largest


def run(content: bytes, names: Sequence[str], batches: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The scores that an ONNX file gives to batches of inputs, in onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is told by the error
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        arrays = [{name: each.numpy() for name, each in zip(names, given, strict=True)} for given in batches]
        return [torch.from_numpy(session.run(["scores"], each)[0]) for each in arrays]
    except Exception as error:  # onnxruntime has a dozen kinds of its own
        reason = str(error).split("\n")[0]
        raise RunError(f"export: onnxruntime does not run the file; nothing is written: {reason}") from error


def put(file: Path, content: bytes, words: bytes) -> None:
    """Write both files; if one cannot be written, both are as they were."""
    beside = words_file(file)
    new, before = not beside.exists(), beside.read_bytes() if beside.is_file() else None
    try:
        write_bytes(beside, words)
        write_bytes(file, content)
    except OSError as error:
        with suppress(OSError):
            if before is not None:
                write_bytes(beside, before)
            elif new:
                beside.unlink(missing_ok=True)
        raise RunError(f"{file} cannot be written: {error.strerror}; what was there is as it was") from None


def exportable(model: nn.Module) -> nn.Module:
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


class Left(NamedTuple):
    """What a sentence encoder takes of an NSE; see `nse.nn.encoder.Encoding`."""

    outputs: Tensor
    last: Tensor
    memory: Memory


class ScanNSE(nn.Module):
    """An `NSE` over words [B, T, k] for the exporter: the loop over words is one operation.

    As in `nse.ops.lean`, what the read LSTM says is made for all words at once, and compose is folded into
    the write LSTM's input matrix. As in `nse.ops.reference`, sequences that have ended are masked.
    """

    def __init__(self, nse: NSE):
        super().__init__()
        self.read, self.write, self.start, self.blank = WholeLSTM(nse.read), nse.write, nse.start, nse.blank
        first, b = nse.weights().write[0], nse.compose.bias
        with torch.no_grad():
            self.folded = first.ih @ nse.compose.weight
            self.bias = F.linear(b, first.ih, first.bias_ih + first.bias_hh)

    def forward(self, x: Tensor, lengths: Tensor, *, shared: tuple[Memory, ...] = ()) -> Left:
        """Encode words of these lengths [B], where other encoders' memories may be shared."""
        from torch._higher_order_ops.scan import scan_op  # imports the compiler, which takes seconds
        from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

        words = Memory(x, lengths) if self.start is None else Memory(x, lengths).prepend(self.start)
        own = words if self.blank is None else words.prepend(self.blank)
        B, T, k = words.slots.shape
        starts = 0 if self.start is None else len(self.start)
        running = real(lengths + starts, T).to(x.dtype)  # [B, T]
        slots = [real(n, M.shape[1]).to(x.dtype) for M, n in (own, *shared) if n is not None]  # it never is
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
        memory = own._replace(slots=after[len(h) + len(c)])
        return Left(outputs[:, starts:], at_end(outputs, lengths + starts), memory)


def step(state: Any, word: Any, fixed: Any) -> tuple[Any, Tensor]:
    """Take one step of all sequences: return the state after it, and h [B, k].

    Args:
        state: h and c [B, k] of each layer of the write LSTM, and M [B, L, k] of each memory.
        word: o [B, k], what it adds to the first layer's gates [B, 4k], and which sequences run [B, 1].
        fixed: Of each memory which slots are real [B, L], and what shuts the others; the matrix that maps
            what was read to gates; the write LSTM's weights.
    """
    (h, c, M), (o, gates, running), (slots, shut, onto_m, (first, *upper)) = state, word, fixed
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
