"""The devices of this host, and their assignment to ranks. Counting them needs no torch."""

# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration


@dataclass(frozen=True)
class DeviceAssignment:
    """The devices of each rank of this host; a rank on a CPU has none."""

    per_rank: tuple[tuple[str, ...], ...]
    gpu: bool
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    selected: tuple[tuple[str, ...], ...] | None = None
    """The devices of --gpus for each rank, on a host that has none of them: scripts read FLAGS_selected_gpus."""


def count_gpus() -> int:
    """The NVIDIA GPUs of this host, as its driver lists them."""
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        pass
    if shutil.which("nvidia-smi") is None:  # a container may have the tool without the /proc entries
        return 0
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ConfigError(f"cannot count the GPUs ({e}); repair nvidia-smi, or remove it from PATH") from e
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def assign(config: Configuration, num_gpus: int, environ: Mapping[str, str]) -> DeviceAssignment:
    """Assign devices to ranks: one each, or a contiguous slice of them if there are fewer ranks."""
    visible = _visible(num_gpus, environ.get("CUDA_VISIBLE_DEVICES"))
    requested = config.gpus
    text = f"--gpus={','.join(requested)}" if requested else "--gpus"
    if requested and not all(g.isdecimal() or g.startswith("GPU-") for g in requested):
        raise ConfigError(f"{text}: a device is a number; write for example --gpus=0,1")
    if not visible:
        return _on_cpu(config, num_gpus)
    chosen = requested or visible
    if missing := [g for g in chosen if g not in visible]:
        raise ConfigError(
            f"{text}: no such device: {', '.join(missing)}; visible devices: {','.join(visible)} "
            f"(CUDA_VISIBLE_DEVICES={environ.get('CUDA_VISIBLE_DEVICES')})"
        )
    relative = tuple(str(visible.index(g)) for g in chosen)
    notes = (
        () if relative == chosen else (f"devices {','.join(chosen)} are {','.join(relative)} for the ranks",)
    )
    ranks = config.nproc_per_node or len(relative)
    _check_divides(ranks, len(relative), "all GPUs" if requested is None else text)
    return DeviceAssignment(_slices(relative, ranks), gpu=True, notes=notes)


def _slices(devices: tuple[str, ...], ranks: int) -> tuple[tuple[str, ...], ...]:
    count = len(devices) // ranks
    return tuple(devices[i * count : (i + 1) * count] for i in range(ranks))


def _visible(num_gpus: int, cuda_visible: str | None) -> tuple[str, ...]:
    if num_gpus == 0:
        return ()
    if cuda_visible is None:
        return tuple(map(str, range(num_gpus)))
    return tuple(device.strip() for device in cuda_visible.split(",") if device.strip() not in ("", "-1"))


def _on_cpu(config: Configuration, num_gpus: int) -> DeviceAssignment:
    if config.gpus is None:
        # Of a single rank the doctor could not measure any collective.
        default = 2 if config.doctor else 1
        return DeviceAssignment(((),) * (config.nproc_per_node or default), gpu=False)
    text = f"--gpus={','.join(config.gpus)}"
    ranks = config.nproc_per_node or len(config.gpus)
    _check_divides(ranks, len(config.gpus), text)
    reason = "this host has no GPU" if num_gpus == 0 else "CUDA_VISIBLE_DEVICES hides every GPU"
    warning = f"{text}: {reason}; {ranks} rank{'s' * (ranks > 1)} on the CPU instead"
    return DeviceAssignment(
        ((),) * ranks, gpu=False, warnings=(warning,), selected=_slices(config.gpus, ranks)
    )


def _check_divides(ranks: int, devices: int, text: str) -> None:
    if devices % ranks:
        fits = ", ".join(str(n) for n in range(1, devices + 1) if devices % n == 0)
        raise ConfigError(
            f"--nproc_per_node={ranks} does not divide the {devices} devices of {text}; use one of {fits}"
        )
