"""`pycudnnrnn info`: what is installed, which engine runs which arrays, and why."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from typing import Any, Final

import click
import numpy as np

import pycudnnrnn
from pycudnnrnn import _discovery, libcudnn
from pycudnnrnn._checks import one_of
from pycudnnrnn.cli._output import console, echo_json
from pycudnnrnn.engines.numpy_engine.kernels_in_use import kernels_in_use
from pycudnnrnn.errors import EngineError, install_text, version_text
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
    "(for convert --verify)": ("keras", "onnxruntime"),
}
"""Distributions by the extra that installs them. No extra installs the last ones."""

TF32_PERMITTED: Final = (MathType.DEFAULT, MathType.TENSOR_OP, MathType.TENSOR_OP_ALLOW_CONVERSION)
"""Math types under which float32 products may be TF32's. Source: cudnnMathType_t (cudnn_graph.h)."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def info(as_json: bool) -> None:
    """Show whether the package works here, and what is installed.

    The first three lines are the answer: the version, whether arrays on the CPU run, and whether CUDA arrays run. Then
    follow details. If libcudnn is missing or unusable, they list each place that was searched; the exit code is still
    0. No driver is loaded and CUDA is not started: use `pycudnnrnn check` to test the installation.

    \b
    Examples:
      pycudnnrnn info
      pycudnnrnn info --json
      PYCUDNNRNN_LIBRARY=/opt/cudnn/lib/libcudnn.so.9 pycudnnrnn info
    """  # noqa: D301  click reads the \b
    report = collect()
    if as_json:
        echo_json(report)
        return
    out = console()
    package, engines = report.pop("package"), report.pop("engines")
    cpu, cuda = engines["NumPy arrays"], engines["CUDA arrays"]
    out.say(", ".join(f"{name} {version}" for name, version in package.items()))
    out.say(f"arrays on the CPU: yes, with {cpu['kernels']}'s kernels ({cpu['why']})")
    out.say(f"CUDA arrays: {'no' if cuda['engine'] is None else 'yes, if there is a GPU'}")
    for reason in cuda["why"].split("; "):
        out.say(f"  {reason}")
    report["library"].pop("problem", None)  # the third line has it
    for section, values in report.items():
        out.print(f"\n{section}", style="bold")
        for key, value in values.items():
            for i, line in enumerate(value if isinstance(value, list) else [_text(value)]):
                out.say(f"  {key if i == 0 else '':<22} {line}")


def collect() -> Report:
    """Return all sections; each is a dict that can be written as JSON."""
    cudnn = library()
    return {
        "package": {
            "pycudnnrnn": pycudnnrnn.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
        },
        "library": cudnn,
        "engines": engines(cudnn),
        "math": math_types(),
        "optional": {extra: {name: _version_of(name) for name in names} for extra, names in OPTIONAL.items()},
    }


def library() -> Report:
    """Report which libcudnn `libcudnn.load()` finds. It is loaded, which does not start CUDA."""
    try:
        tried = _discovery.find(_discovery.Context())[1]
        cudnn = libcudnn.load()
    except EngineError as error:
        return {"found": False, "problem": error.reason, "tried": list(error.attempts)}
    return {
        "found": True,
        "version": version_text(cudnn.version),
        "path": cudnn.path,
        "found_via": cudnn.found_via,
        "tried": list(tried),
        "sub_libraries": list(cudnn.parts),
        "cuda_runtime": cudnn.cudnnGetCudartVersion(),
    }


def engines(cudnn: Report) -> Report:
    """Report which engine runs which arrays, from what is installed; whether there is a GPU is not checked."""
    missing, cpu = [], kernels_in_use()
    if not cudnn["found"]:
        missing.append(f"no libcudnn can be used ({cudnn['problem']})")
    if importlib.util.find_spec("cupy") is None:
        missing.append(f"CuPy is not installed: {install_text('cupy-cuda13x', 'cuda13')}")
    cuda = f"libcudnn {cudnn.get('version')} and CuPy are installed"
    if missing:
        cuda = f"{'; '.join(missing)}; CUDA arrays raise an error, and are never moved to the CPU"
    return {
        "NumPy arrays": {"engine": "numpy", "kernels": cpu.kernels, "why": cpu.why},
        "CUDA arrays": {"engine": None if missing else "cudnn", "why": cuda},
    }


def math_types() -> Report:
    """Report the default `math_type` for each dtype, and whether TF32 is permitted."""
    usual = {str(dtype): str(RNNSpec(RNNMode.LSTM, 1, 1, 1, dtype=dtype).math_type) for dtype in DType}
    return {
        "usual math_type": usual,
        "TF32": {
            "permitted": usual["float32"] in TF32_PERMITTED,
            "why": f"only a spec with math_type {one_of([*map(str, TF32_PERMITTED)])} permits TF32",
        },
        # Set to 0, it forbids TF32 in NVIDIA's libraries, even if a program permits it. Source: cuBLAS's documents.
        "NVIDIA_TF32_OVERRIDE": os.environ.get("NVIDIA_TF32_OVERRIDE"),
    }


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    return {True: "yes", False: "no", None: "-"}[value] if value is None or isinstance(value, bool) else str(value)
