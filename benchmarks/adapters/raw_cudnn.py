"""The floor: a C++ program over the same libcudnn file, built here, in a process of its own."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from pycudnnrnn import libcudnn, ops
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import EngineError
from pycudnnrnn.layout import arithmetic_layout

from ..data import Array, Data, flat, gradients_of, results_of, spec_of
from ..problems import Problem
from ..timing import SPIN_S, Sample
from . import NotRun, Prepared

SOURCE = Path(__file__).with_suffix(".cpp")
CUDA_HOMES = ("/usr/local/cuda", "/opt/cuda")
FOLDER = Path(__file__).parents[2] / "build" / "raw_cudnn"
"""Where the program is kept from run to run."""


def versions() -> dict[str, Any]:
    described = subprocess.run([program(), "--describe"], capture_output=True, text=True, check=True)
    found = json.loads(described.stdout)
    return {"raw_cudnn": found["cudnn_loaded"], "raw_cudnn_path": found["linked"]}


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    if option == "graph" and (problem.lengths != "full" or which not in ("infer", "step")):
        raise NotRun("in a graph, written for full batches and whole steps")
    spec = spec_of(problem, dtype)
    server = _server(option)
    with tempfile.TemporaryDirectory(prefix="raw-cudnn-") as folder:
        _write(Path(folder), spec, data)
        figures = server.ask(f"prepare --data {folder} {_options(spec, problem, which, option, data)}")
        if engine_for("cuda").layout(spec) != arithmetic_layout(spec):
            raise NotRun("cuDNN has another layout of the weights here than the program's data")
        found = _read(Path(folder), spec, problem, which)
    figures |= {"algo": str(spec.algo), "math_type": str(spec.math_type), "clock": "events"}
    return RawPrepared(lambda: None, lambda: found, figures=figures, on_gpu=True, server=server)


@dataclasses.dataclass
class RawPrepared(Prepared):
    """What the program holds ready; it times itself."""

    server: Any = None

    def spin(self) -> None:
        """Time one sample for nothing: the program warms up at its first alone."""
        self.server.ask(f"sample {SPIN_S}")

    def sample(self, seconds: float) -> Sample:
        figures = self.server.ask(f"sample {seconds}")
        return Sample(figures.pop("times_us"), figures)


def _options(spec: Any, problem: Problem, which: str, option: str, data: Data) -> str:
    words = [
        f"--cell {problem.cell} --layers {problem.L} --dirs {problem.D} --batch {problem.B} --steps {problem.T}",
        f"--inputs {problem.I} --units {problem.U} --dtype {spec.dtype} --math {spec.math_type} --algo {spec.algo}",
        f"--pass {which}",
    ]
    words += [f"--proj {problem.P}"] if problem.P else []
    flags = {"--skip": problem.input == "skip", "--carried": problem.carried, "--graph": option == "graph"}
    words += [flag for flag, on in flags.items() if on]
    words += [f"--lengths {','.join(map(str, data.lengths))}"] if data.lengths is not None else []
    return " ".join(words)


def _write(folder: Path, spec: Any, data: Data) -> None:
    data = data.cast(spec.dtype.numpy)
    params = ops.from_spec(spec).canonical_to_params(data.canonical.weights, data.canonical.biases)
    for name, array in {"params": params, "x": data.x, "dy": data.dy}.items():
        array.tofile(folder / f"{name}.bin")


def _read(folder: Path, spec: Any, problem: Problem, which: str) -> dict[str, Array]:
    def read(name: str, *shape: int) -> Array:
        return np.fromfile(folder / f"{name}.bin", spec.dtype.numpy).reshape(shape)

    states = (spec.num_pseudo_layers, problem.B)
    y = read("y", problem.T, problem.B, spec.output_size)
    if which in ("infer", "train"):
        cy = read("cy", *states, spec.num_units) if problem.cell == "lstm" else None
        return results_of(y, read("hy", *states, spec.state_size), cy)
    op = ops.from_spec(spec)
    dw = flat(*op.params_to_canonical(read("dw", op.params_size())))
    return gradients_of(which, y, read("dx", problem.T, problem.B, problem.I), dw)


class Server:
    """The program, waiting for lines."""

    def __init__(self, path: Path) -> None:
        folders = [*filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        with contextlib.suppress(ImportError, RuntimeError):  # cuDNN opens NVRTC by name for its dynamic algorithm
            from cuda import pathfinder

            folders.insert(0, str(Path(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path).parent))
        environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(folders)}
        self._process = subprocess.Popen(
            [path, "--serve"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        atexit.register(self._process.communicate, "quit\n")

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line and return the answer.

        Raises:
            NotRun: cuDNN has no such RNN, or there is no GPU.
            RuntimeError: anything else that went wrong there.
        """
        self._process.stdin.write(line + "\n")
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"raw_cudnn ended with exit code {self._process.wait()}")
        found: dict[str, Any] = json.loads(answer)
        if "refused" in found:
            raise NotRun(found["refused"])
        if "error" in found:
            raise RuntimeError(found["error"])
        return found


@functools.cache
def _server(_option: str) -> Server:  # one holds one RNN
    return Server(program())


def program() -> Path:
    """Build the program against the libcudnn that the package uses, unless an earlier run has built it.

    Raises:
        NotRun: no compiler, no headers, or no library here.
    """
    try:
        library = Path(libcudnn.load().path)
    except EngineError as error:
        raise NotRun(str(error).partition("\n")[0]) from error
    built_from = f"{library} {library.stat().st_mtime_ns} {SOURCE.read_text(encoding='utf-8')}"
    target = FOLDER / hashlib.sha256(built_from.encode()).hexdigest()[:16] / "raw_cudnn"
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_suffix(".lock")):  # a run begins to build beside the start of its processes
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                build(library, Path(folder)).replace(target)
    return target


def build(library: Path, folder: Path) -> Path:
    """Compile and link in `folder`; nvcc where it is found, and g++ with CUDA's headers otherwise."""
    headers = [
        path for path in (library.parent.parent / "include", Path("/usr/include")) if (path / "cudnn.h").exists()
    ]
    if not headers:
        raise NotRun(f"no cudnn.h beside {library}")
    target = folder / "raw_cudnn"
    homes = [Path(home) for home in CUDA_HOMES if (Path(home) / "include" / "cuda_runtime_api.h").exists()]
    nvcc, gcc = shutil.which("nvcc"), shutil.which("g++")
    if nvcc and gcc:  # which nvcc calls
        command = [nvcc, str(SOURCE), "-Xlinker", str(library), "-Xlinker", f"-rpath={library.parent}"]
    elif gcc and homes:
        lib = homes[0] / "lib64"
        command = [gcc, str(SOURCE), f"-I{homes[0] / 'include'}", f"-L{lib}", "-lcudart", f"-Wl,-rpath,{lib}"]
        command += [str(library), f"-Wl,-rpath,{library.parent}"]
    else:
        raise NotRun("no g++ with nvcc or CUDA's headers is here")
    command += ["-O2", "-std=c++17", f"-I{headers[0]}", "-o", str(target), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"raw_cudnn does not build: {done.stderr[-800:]}")
    return target
