"""`pycudnnrnn info`: what is installed, which engine runs which arrays, and why."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Callable
from typing import Any, Final

import click
import numpy as np

import pycudnnrnn
from pycudnnrnn import _discovery, libcudnn
from pycudnnrnn._checks import one_of
from pycudnnrnn.cli._output import console, echo_json, print_table
from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.numpy_engine.kernels_in_use import kernels_in_use
from pycudnnrnn.errors import EngineError, PycudnnrnnError, install_text, version_text
from pycudnnrnn.spec import DType, MathType, RNNMode, RNNSpec

Report = dict[str, Any]

OPTIONAL: Final = {
    "cuda12": ("cupy-cuda12x", "nvidia-cudnn-cu12"),
    "cuda13": ("cupy-cuda13x", "nvidia-cudnn-cu13"),
    "bfloat16": ("ml_dtypes",),
    "fast": ("numba",),
    "plot": ("matplotlib",),
    "testing": ("hypothesis",),
    "convert": ("h5py", "onnx"),
    "torch": ("torch",),
    "tf": ("google-crc32c",),
    "jax": ("jax",),
    "distributed": ("mpi4py",),
    "(oracles)": ("keras", "onnxruntime"),
}
"""Distributions by the extra that installs them. No extra installs the last ones."""

TF32_PERMITTED: Final = (MathType.DEFAULT, MathType.TENSOR_OP, MathType.TENSOR_OP_ALLOW_CONVERSION)
"""Math types under which float32 products may be TF32's. Source: cudnnMathType_t (cudnn_graph.h)."""

TF32_OVERRIDE: Final = "NVIDIA_TF32_OVERRIDE"
"""Set to 0, it forbids TF32 in NVIDIA's libraries, even if a program permits it. Source: cuBLAS and cuDNN documents."""


@click.command()
@click.option("--devices", is_flag=True, help="List the GPUs, too. This starts CUDA in the process.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def info(devices: bool, as_json: bool) -> None:
    """Show which libcudnn is used and what else is installed.

    The report also shows which engine runs NumPy and CUDA arrays, and why. If libcudnn is missing or unusable, it lists
    each place that was searched; the exit code is still 0. Use `pycudnnrnn check` to test the installation. Without
    --devices, no driver is loaded and CUDA is not started.

    \b
    Examples:
      pycudnnrnn info
      pycudnnrnn info --devices --json
      PYCUDNNRNN_LIBRARY=/opt/cudnn/lib/libcudnn.so.9 pycudnnrnn info
    """  # noqa: D301  click reads the \b
    report = collect(devices=devices)
    if as_json:
        echo_json(report)
        return
    out = console()
    for section, values in report.items():
        out.print(section, style="bold")
        for key, value in values.items():
            lines: list[Any] = value if isinstance(value, list) else [_text(value)]
            if lines and isinstance(lines[0], dict):
                print_table(out, list(lines[0]), [list(line.values()) for line in lines])
                continue
            for i, line in enumerate(lines):
                out.say(f"  {key if i == 0 else '':<20} {line}")


def collect(*, devices: bool) -> Report:
    """Return all sections; each is a dict that can be written as JSON."""
    report: Report = {}
    for name, section in SECTIONS.items():
        report[name] = section(report)
    if devices:
        report["devices"] = cuda_devices(report)
    return report


def package(_: Report) -> Report:
    return {
        "pycudnnrnn": pycudnnrnn.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
    }


def library(_: Report) -> Report:
    """Report which libcudnn `libcudnn.load()` finds. It is loaded, which does not start CUDA."""
    try:
        tried = _discovery.find(_discovery.Context())[1]
        found = libcudnn.load()
    except EngineError as error:
        return {"found": False, "problem": error.reason, "tried": list(error.attempts)}
    return {
        "found": True,
        "version": version_text(found.version),
        "path": found.path,
        "found_via": found.found_via,
        "tried": list(tried),
        "sub_libraries": list(found.parts),
        "cuda_runtime": found.cudnnGetCudartVersion(),
    }


def engines(report: Report) -> Report:
    """Report which engine runs which arrays, from what is installed; whether there is a GPU is not checked."""
    found, missing, cpu = report["library"], [], kernels_in_use()
    if not found["found"]:
        missing.append(f"no libcudnn can be used ({found['problem']})")
    if importlib.util.find_spec("cupy") is None:
        missing.append(f"CuPy is not installed: {install_text('cupy-cuda13x', 'cuda13')}")
    cuda = f"libcudnn {found.get('version')} and CuPy are installed; --devices lists the GPUs"
    if missing:
        cuda = f"{'; '.join(missing)}; CUDA arrays raise an error, and are never moved to the CPU"
    return {
        "NumPy arrays": {
            "engine": "numpy",
            "why": "arrays on the CPU, also torch's and JAX's, always run on this engine",
            "kernels": cpu.kernels,
            "why these kernels": cpu.why,
        },
        "CUDA arrays": {"engine": None if missing else "cudnn", "why": cuda},
    }


def math_types(_: Report) -> Report:
    """Report the default `math_type` for each dtype, and whether TF32 is permitted."""
    usual = {str(dtype): str(RNNSpec(RNNMode.LSTM, 1, 1, 1, dtype=dtype).math_type) for dtype in DType}
    return {
        "usual math_type": usual,
        "TF32": {
            "permitted": usual["float32"] in TF32_PERMITTED,
            "why": f"math_type is {usual['float32']!r} for float32; a spec with math_type "
            f"{one_of([str(kind) for kind in TF32_PERMITTED])} permits TF32",
        },
        TF32_OVERRIDE: os.environ.get(TF32_OVERRIDE),
    }


def optional(_: Report) -> Report:
    return {extra: {name: _version_of(name) for name in names} for extra, names in OPTIONAL.items()}


def cuda_devices(_: Report) -> Report:
    """List the GPUs that CuPy finds."""
    try:
        runtime = CudaDevice().xp.cuda.runtime
    except PycudnnrnnError as error:
        return {"found": 0, "problem": str(error)}
    count = runtime.getDeviceCount()
    gpus = []
    for index in range(count):
        properties = runtime.getDeviceProperties(index)
        gpus.append(
            {
                "device": f"cuda:{index}",
                "name": properties["name"].decode(),
                "compute capability": f"{properties['major']}.{properties['minor']}",
                "memory [GiB]": round(properties["totalGlobalMem"] / 2**30, 1),
            }
        )
    return {"found": count, "driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion(), "gpus": gpus}


SECTIONS: Final[dict[str, Callable[[Report], Report]]] = {
    "package": package,
    "library": library,
    "engines": engines,
    "math": math_types,
    "optional": optional,
}
"""The sections that do not start CUDA, in order; a section may read those before it."""


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    return {True: "yes", False: "no", None: "-"}[value] if value is None or isinstance(value, bool) else str(value)
