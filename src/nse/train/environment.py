"""What a run ran on, for whoever reads its figures later."""

from __future__ import annotations

import platform
from typing import Any

import torch

import nse


def environment(device: torch.device, processes: int) -> dict[str, Any]:
    """Versions, device and number of processes; nothing that names a machine or a person."""
    return {
        "nse": nse.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device": device_name(device),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def device_name(device: torch.device) -> str:
    """What the device is called, such as NVIDIA H200; a CPU is "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
