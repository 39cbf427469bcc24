"""Compare the instruction sets of the compiled kernel: a process for each, which measure in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

from benchmarks.speed import cpu
from nse.ops.cpu.library import list_isas

ROUNDS = 5


def compare_instruction_sets(plan: cpu.Plan, threads: int, log: Console) -> list[dict[str, Any]]:
    """Return a row for each instruction set and shape, with its time over the first set's and the LSTM's."""
    rows: list[dict[str, Any]] = []
    if (reason := cpu.find_obstacle("cpu")) is not None:
        log.print(f"no instruction sets to compare: {reason}", highlight=False, markup=False, soft_wrap=True)
        return rows
    with ExitStack() as stack:
        processes = {name: stack.enter_context(start(name, plan.k, threads)) for name in list_isas()}
        for shape in plan.shapes:
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in processes}
            for _ in range(min(plan.rounds, ROUNDS)):
                for name, process in processes.items():
                    rounds[name].append(ask(process, [*shape, plan.seconds]))
            first = next(iter(rounds.values()))
            for name, figures in rounds.items():
                row = {"isa": name, "B": shape.B, "T": shape.T, "k": plan.k, "mode": shape.mode}
                row["ms"] = round(median(each["cpu"] for each in figures), 3)
                row["over_lstm"] = round(median(each["cpu"] / each[cpu.LSTM] for each in figures), 3)
                pairs = zip(figures, first, strict=True)
                row["over_first"] = round(median(a["cpu"] / b["cpu"] for a, b in pairs), 3)
                rows.append(row)
                log.print(f"{name} {shape}: {cpu.describe_row(row)}", highlight=False)
    return rows


def start(name: str, k: int, threads: int) -> subprocess.Popen[str]:
    """Start a process whose kernel uses one instruction set."""
    command = [sys.executable, str(Path(__file__).parent), "--threads", str(threads), "--bursts", str(k)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, env={**os.environ, "NSE_CPU_ISA": name}, text=True, **pipes)


def ask(process: subprocess.Popen[str], question: list[Any]) -> dict[str, float]:
    """Let a process measure a burst of calls; return the milliseconds of the kernel and of the LSTM."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(question), file=process.stdin, flush=True)
    answer: dict[str, float] = json.loads(process.stdout.readline())
    return answer


def answer_questions(k: int, threads: int) -> None:
    """Measure a burst for each shape on standard input, in the process that `start` starts."""
    torch.set_num_threads(threads)
    prepared: dict[cpu.Shape, dict[str, tuple[cpu.Run, int]]] = {}
    for line in sys.stdin:
        *fields, seconds = json.loads(line)
        shape = cpu.Shape(*fields)
        if shape not in prepared:
            prepared.clear()
            problem = cpu.draw_problem(shape, k)
            calls = {side: cpu.prepare(side, problem, shape.mode) for side in ("cpu", cpu.LSTM)}
            prepared[shape] = {side: (call, cpu.count_calls(call, seconds)) for side, call in calls.items()}
        bursts = {side: cpu.time_burst(*each) for side, each in prepared[shape].items()}
        print(json.dumps(bursts), flush=True)
