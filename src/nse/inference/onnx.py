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
from nse.inference import kinds as purpose
from nse.nn.attention import Alignment
from nse.nn.encoder import NSE
from nse.nn.pair import PairClassifier, unread
from nse.nn.sentence_encoder import Encoded, LSTMSentence, at_end, turned
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


def to_onnx(model: hub.Model | str | Path, file: Path) -> dict[str, Any]:
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
    loaded = model if isinstance(model, hub.Model) else hub.load(model)
    names = inputs(loaded)
    refuse_large(loaded)
    loaded = loaded._replace(model=copy.deepcopy(loaded.model).cpu().eval())
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


def inputs(loaded: hub.Model) -> dict[str, tuple[str, ...]]:
    """What the file takes, in the model's order: of each input its name, and the names of its dimensions."""
    if loaded.config.kind == "translation":
        why = "translates, and its search for a translation is not in ONNX's reach here"
        raise InputError(f"model: {loaded.folder} {why}; export a model of sentences, pairs or documents")
    found = dict[str, tuple[str, ...]]()
    for name in purpose.columns(loaded):
        if loaded.config.kind == "document":
            found |= {name: ("sentences", "words"), f"{name}_lengths": ("sentences",)}
            found |= {f"{name}_rows": ("batch", "most_sentences"), f"{name}_counts": ("batch",)}
        else:
            found |= {name: ("batch", f"{name}_words"), f"{name}_lengths": ("batch",)}
    return found


def refuse_large(loaded: hub.Model) -> None:
    """Refuse a model that does not fit one file, before anything is computed."""
    size = sum(tensor.nbytes for tensor in loaded.model.state_dict().values())
    if size > LARGEST:
        told = f"has {size:,} bytes of weights, and an ONNX file holds {LARGEST:,}"
        raise InputError(f"model: {loaded.folder} {told}; export one that knows fewer words")


def about(loaded: hub.Model) -> dict[str, str]:
    """What a program needs to know beside the graph, for the file's metadata."""
    config = loaded.config
    longest = {"longest": reading.limit(loaded)}  # words of a text that are read
    if config.kind == "document":
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


def graph(loaded: hub.Model, names: dict[str, tuple[str, ...]], metadata: dict[str, str]) -> bytes:
    """The ONNX file of a model."""
    model = exportable(loaded.model)
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


def made_up(loaded: hub.Model, batch: int, most: int, seed: int = 0) -> list[Tensor]:
    """Inputs of a model: so many random texts, the first `most` words long, the others shorter, one empty."""
    draw, found = torch.Generator().manual_seed(seed), list[Tensor]()
    for column in range(len(purpose.columns(loaded))):
        lengths = torch.randint(1, most + 1, (batch,), generator=draw)
        lengths[0] = most
        if batch > 2 and column == 0:
            lengths[-1] = 0
        found += texts(loaded, lengths.tolist(), draw)
        most = most // 2 + 2  # the two texts of a pair differ in length
    return found


def texts(loaded: hub.Model, lengths: Sequence[int], draw: torch.Generator) -> list[Tensor]:
    """Random texts of these numbers of words, as the model takes them; of a document each is a sentence."""
    ids = [tuple(torch.randint(1, len(loaded.vocabulary), (n,), generator=draw).tolist()) for n in lengths]
    if loaded.config.kind != "document":
        return reading.as_texts(ids).inputs
    rows = [(sum(ids, ()), tuple(lengths)), (ids[0], (lengths[0],))]  # all sentences, and the first alone
    documents = reading.as_documents(*zip(*rows[: len(ids)], strict=True))
    return list(documents.select(torch.arange(len(documents.counts))).inputs)


@torch.no_grad()
def checked(loaded: hub.Model, names: Sequence[str], content: bytes) -> float:
    """The largest difference between the scores of a file, in onnxruntime, and PyTorch's.

    Raises:
        RunError: It is too large, a label is another, or the file does not run.
    """
    batches = [made_up(loaded, *size, seed) for seed, size in enumerate(SIZES, start=1)]
    largest = 0.0
    for given, found, (batch, most) in zip(batches, run(content, names, batches), SIZES, strict=True):
        wanted = loaded.model(*given)
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
    """A copy of a model with the same weights, in which every loop over words is one operation."""
    model = copy.deepcopy(model)
    if isinstance(model, PairClassifier):
        model.__class__ = Apart
    for name, module in list(model.named_modules()):
        if isinstance(module, (NSE, LSTMSentence)):
            owner = model.get_submodule(name.rpartition(".")[0])
            made = ScanNSE(module) if isinstance(module, NSE) else PaddedLSTM(module)
            setattr(owner, name.rpartition(".")[2], made.eval())
    return model


class Apart(PairClassifier):
    """A `PairClassifier` that reads its texts one after the other, each no further than to its own end.

    As one batch they would be split by numbers that the exporter takes for fixed.
    """

    def encoded(self, x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor) -> tuple[Encoded, Encoded]:
        """Both sentences, encoded, from their words [B, T, k]."""
        if self.second is not None:
            return super().encoded(x, x_lengths, y, y_lengths)
        return self.encoder(x, x_lengths), self.encoder(y, y_lengths)

    def aligned(self, alignment: Alignment, first: Encoded, second: Encoded) -> tuple[Encoded, Encoded]:
        """Both sentences, each word compared with its match in the other, and read again."""
        read = unread if self.reader is None else self.reader
        a, b = alignment(first.outputs, first.lengths, second.outputs, second.lengths)
        return read(a, first.lengths), read(b, second.lengths)


class WholeLSTM(nn.Module):
    """An `nn.LSTM` over words [T, B, size], of each layer ONNX's own operation.

    Args:
        lstm: Whose weights it has.
    """

    def __init__(self, lstm: nn.LSTM):
        super().__init__()
        self.size, self.layers = lstm.hidden_size, nn.ModuleList()
        for weights in lstm.all_weights:
            # Of the gates in, forget, cell and out, ONNX has the last one second.
            i, f, g, o = range(4)
            W, R, *b = (each.detach().unflatten(0, (4, -1))[[i, o, f, g]].flatten(0, 1) for each in weights)
            self.layers.append(nn.ParameterList([W[None], R[None], torch.cat(b)[None]]))

    def forward(self, x: Tensor) -> Tensor:
        """The outputs [T, B, k]."""
        for layer in self.layers:
            given, shape = (x, *layer.parameters()), (x.shape[0], 1, x.shape[1], self.size)
            told: dict[str, Any] = {"hidden_size": self.size}
            x = torch.onnx.ops.symbolic("LSTM", given, told, dtype=x.dtype, shape=shape).squeeze(1)
        return x


class Left(NamedTuple):
    """What a sentence encoder takes of an NSE; see `nse.nn.encoder.Encoding`."""

    outputs: Tensor
    last: Tensor
    memory: Memory


class ScanNSE(nn.Module):
    """The function of an `NSE`, for the exporter.

    As in `nse.ops.lean`, what the read LSTM says is made for all words at once, and compose is folded into
    the write LSTM's input matrix. As in `nse.ops.reference`, sequences that have ended are masked.

    Args:
        nse: Whose weights it has.
    """

    folded: Tensor
    bias: Tensor

    def __init__(self, nse: NSE):
        super().__init__()
        self.read, self.write = WholeLSTM(nse.read), nse.write
        self.start, self.blank = nse.start, nse.blank
        first, b = nse.weights().write[0], nse.compose.bias
        with torch.no_grad():
            self.register_buffer("folded", first.ih @ nse.compose.weight)
            self.register_buffer("bias", F.linear(b, first.ih, first.bias_ih + first.bias_hh))

    def forward(self, x: Tensor, lengths: Tensor, *, shared: tuple[Memory, ...] = ()) -> Left:
        """Encode words [B, T, k] of these lengths [B], where other encoders' memories may be shared."""
        x, lengths = behind(self.start, x, lengths)
        own = Memory(*behind(self.blank, x, lengths))
        running = real(lengths, x.shape[1])  # [B, T]
        h, M = self.scanned(x, running, (own, *shared))
        h = h * running[..., None]
        starts = 0 if self.start is None else len(self.start)
        return Left(h[:, starts:], at_end(h, lengths), own._replace(slots=M))

    def scanned(self, x: Tensor, running: Tensor, memories: Sequence[Memory]) -> tuple[Tensor, Tensor]:
        """What is written at all steps [B, T, k], and the own memory, the first one, in the end."""
        from torch._higher_order_ops.scan import scan_op  # imports the compiler, which takes seconds
        from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

        B, _, k = x.shape
        onto_o, onto_m = self.folded.split([k, self.folded.shape[1] - k], dim=1)
        slots = [real(n, M.shape[1]).to(x.dtype) for M, n in memories if n is not None]  # it never is
        shut = [(1 - each) * torch.finfo(x.dtype).min for each in slots]
        layers = self.write.all_weights
        h, c = ([x.new_zeros(B, k) for _ in layers] for _ in range(2))
        M = [memory.slots * each[..., None] for memory, each in zip(memories, slots, strict=True)]
        o = self.read(x.transpose(0, 1))  # [T, B, k]
        words = [o, F.linear(o, onto_o, self.bias), running.t()[..., None].to(x.dtype)]
        state, fixed = (h, c, M), (slots, shut, onto_m, layers)
        _, form = tree_flatten((state, words, fixed))

        def flat(*given: Tensor) -> list[Tensor]:
            after, output = step(*tree_unflatten(given, form))
            return [*tree_leaves(after), output.clone()]  # no tensor may come out twice

        *after, outputs = scan_op(flat, tree_leaves(state), words, tuple(tree_leaves(fixed)))
        return outputs.transpose(0, 1), after[2 * len(layers)]


def behind(learned: Tensor | None, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Words [B, T, k] and their lengths, with what was learned [n, k] in front of each sequence."""
    if learned is None:
        return x, lengths
    return torch.cat([learned.expand(x.shape[0], -1, -1), x], dim=1), lengths + len(learned)


def step(state: Any, word: Any, fixed: Any) -> tuple[Any, Tensor]:
    """One step of all sequences: the state after it, and h [B, k].

    Args:
        state: h and c [B, k] of each layer of the write LSTM, and M [B, L, k] of each memory.
        word: o [B, k], what it adds to the first layer's gates [B, 4k], and which sequences run [B, 1].
        fixed: Of each memory which slots are real [B, L], and what shuts the others; the matrix that maps
            what was read to gates; the write LSTM's weights.
    """
    h, c, M = state
    o, gates, running = word
    slots, shut, onto_m, (first, *upper) = fixed
    z = [
        (torch.bmm(M_j, o[..., None]).squeeze(-1) + shut_j).softmax(dim=-1) * slots_j * running
        for M_j, shut_j, slots_j in zip(M, shut, slots, strict=True)
    ]
    m = [torch.bmm(z_j[:, None], M_j).squeeze(1) for z_j, M_j in zip(z, M, strict=True)]
    gates = gates + F.linear(torch.cat(m, dim=-1), onto_m) + F.linear(h[0], first[1])
    states = [cell(gates, c[0])]
    for (ih, hh, bias_ih, bias_hh), h_l, c_l in zip(upper, h[1:], c[1:], strict=True):
        states.append(cell(F.linear(states[-1][0], ih, bias_ih) + F.linear(h_l, hh, bias_hh), c_l))
    h, c = (list(each) for each in zip(*states, strict=True))
    M = [M_j * (1 - z_j[..., None]) + h[-1][:, None] * z_j[..., None] for z_j, M_j in zip(z, M, strict=True)]
    return (h, c, M), h[-1]


def cell(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden and cell state of an LSTM layer, from its gates [B, 4k] and the cell state before."""
    i, f, g, o = gates.chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


class PaddedLSTM(nn.Module):
    """The function of an `LSTMSentence`, which packs its words by lengths that a graph does not know.

    Args:
        sentence: Whose weights it has.
    """

    def __init__(self, sentence: LSTMSentence):
        super().__init__()
        self.lstm = WholeLSTM(sentence.lstm)
        self.back = None if sentence.back is None else WholeLSTM(sentence.back)

    def forward(self, x: Tensor, lengths: Tensor) -> Encoded:
        """Encode a batch; an empty sentence is zero."""
        outputs = self.lstm(x.transpose(0, 1)).transpose(0, 1)
        last = at_end(outputs, lengths)
        if self.back is not None:
            back = self.back(turned(x, lengths).transpose(0, 1)).transpose(0, 1)
            outputs = torch.cat([outputs, turned(back, lengths)], dim=-1)
            last = torch.cat([last, at_end(back, lengths)], dim=-1)
        return Encoded(outputs * real(lengths, x.shape[1])[..., None], lengths, last)
