"""Plays macOS or Windows on Linux, and uses the package: `python -m tests.systems.play darwin`. Prints a JSON object.

What the system lacks is taken from `os` and from the modules that can be imported. As Windows does, a file that is open
cannot be replaced or removed, and text without an encoding is an error. This shows what a system does not have. It
cannot show what it does differently.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import json
import os
import pathlib
import platform
import signal
import sys
import tempfile
import traceback
import warnings
from types import SimpleNamespace

import filelock
import pytest

LINUX = (
    "O_PATH", "O_TMPFILE", "O_NOATIME", "getxattr", "setxattr", "removexattr", "listxattr", "sched_getaffinity",
    "sched_setaffinity", "memfd_create", "posix_fadvise", "posix_fallocate", "copy_file_range", "eventfd", "pidfd_open",
    "getrandom", "sendfile",
)  # fmt: skip
UNIX = (
    "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_SYNC", "pread", "pwrite", "preadv",
    "pwritev", "fchown", "fchmod", "chown", "lchown", "geteuid", "getuid", "getgid", "getegid", "getpgid", "setsid",
    "fork", "forkpty", "register_at_fork", "mkfifo", "openpty", "killpg", "statvfs", "sysconf",
)  # fmt: skip
MODULES = ("fcntl", "resource", "termios", "pwd", "grp", "pty", "tty")
OTHERS = ("cupy", "cuda", "torch", "jax", "keras", "onnxruntime")  # they ask the real system themselves
SIGNALS = ("SIGALRM", "SIGKILL", "SIGUSR1", "SIGHUP", "alarm", "setitimer", "pthread_sigmask")


def import_others():
    """Import what the package imports, and what asks the real system when it is imported or first used."""
    names = (
        "numpy.testing h5py onnx google_crc32c ml_dtypes safetensors.numpy rich.console rich.progress rich.table "
        "click.testing zipfile shutil subprocess hashlib secrets ctypes.util sysconfig concurrent.futures asyncio "
        "importlib.metadata importlib.resources multiprocessing pydoc_data.topics getpass webbrowser uuid"
    )
    if os.environ.get("PYCUDNNRNN_CPU_KERNELS") == "numba":
        names += " numba llvmlite.binding"
    for name in names.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    platform.platform()


def take_away(system):
    """Make `os` and the imports those of `system`, which is "darwin" or "win32"."""
    windows = system == "win32"
    gone = {os: LINUX + windows * UNIX, signal: windows * SIGNALS}
    for module, names in gone.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.modules |= dict.fromkeys(OTHERS + windows * MODULES)  # a module that is None cannot be imported
    tempfile._O_TMPFILE_WORKS = False
    if windows:
        os.O_BINARY = 0
        os.add_dll_directory = lambda path: contextlib.nullcontext()
        ctypes.WinDLL = lambda name: kernel({})
        filelock.FileLock = NoLock  # filelock's own asks for fcntl here, and for msvcrt there
        for name in ("replace", "rename", "unlink", "remove"):
            setattr(os, name, functools.partial(refuse_if_open, getattr(os, name)))
    sys.platform = system


class NoLock:
    """A lock of one process with one thread, and the file that filelock leaves."""

    def __init__(self, path):
        pathlib.Path(path).touch()

    def acquire(self):
        pass

    def release(self):
        pass


def kernel(loaded):
    """kernel32 of a process with these DLLs, as far as it is asked."""
    names = list(loaded)

    def handle(name):
        return names.index(name) + 1 if name in names else None

    def file_name(module, buffer, size):
        assert size == len(buffer)
        buffer.value = loaded[names[module - 1]]

    return SimpleNamespace(GetModuleHandleW=handle, GetModuleFileNameW=file_name)


def refuse_if_open(function, *paths, **options):
    """Call a function of `os`, unless one of its paths is open or mapped in this process: Windows refuses these."""
    is_open = {os.path.realpath(link) for link in pathlib.Path("/proc/self/fd").iterdir()}
    mapped = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8")
    for name in map(os.path.realpath, paths):
        if name in is_open or f" {name}\n" in mapped:
            raise PermissionError(13, "The process cannot access the file because it is being used", name)
    return function(*paths, **options)


def run(tmp):
    import numpy as np

    from pycudnnrnn import ops

    op = ops.CudnnLSTM(2, 8, 4, dropout=0.5, seed=3)
    params = op.init_params(1)
    forward = op.forward(np.ones((5, 3, 4), "f"), None, None, params, sequence_lengths=[5, 0, 3])
    assert np.abs(forward.backward(np.ones((5, 3, 8), "f")).params).max() > 0


def train_and_save(tmp):
    import numpy as np

    import pycudnnrnn as rnn
    from pycudnnrnn import checkpoint

    layer = rnn.CudnnGRU(1, 8, name="enc")
    layer.build((None, None, 4))
    for kind in ("safetensors", "tensorflow"):
        saver = rnn.Saver({"enc": layer}, max_to_keep=2)
        for step in range(4):
            path = saver.save(tmp / kind, step, format=kind)
        before = layer.params.copy()
        layer.params[:] = 0
        saver.restore(path)
        np.testing.assert_array_equal(layer.params, before)
    for _ in range(2):
        checkpoint.save(tmp / "m.safetensors", layer)
    np.testing.assert_array_equal(checkpoint.load(tmp / "m.safetensors").params, layer.params)


def save_over_an_open_file(tmp):
    import pycudnnrnn as rnn
    from pycudnnrnn import checkpoint

    layer, path = rnn.CudnnGRU(1, 8), tmp / "m.safetensors"
    layer.build((None, None, 4))
    checkpoint.save(path, layer)
    before = path.read_bytes()
    with path.open("rb"):
        if sys.platform == "win32":
            with pytest.raises(PermissionError) as refused:
                checkpoint.save(path, layer)
            assert refused.value.filename == str(path)
        else:
            checkpoint.save(path, layer)
    assert path.read_bytes() == before
    assert [file.name for file in tmp.glob("*safetensors")] == [path.name]


def commands(tmp):
    """Each command, with its files."""
    import click.testing

    import pycudnnrnn as rnn
    from pycudnnrnn import checkpoint
    from pycudnnrnn.cli import command_group

    checkpoint.save(tmp / "c.safetensors", rnn.CudnnLSTM.from_spec(rnn.RNNSpec("lstm", 1, 8, 4)))
    for words in (
        ["info"], ["--help"], ["layout", "lstm", "1", "8", "4"], ["inspect", tmp / "c.safetensors"],
        ["convert", tmp / "c.safetensors", tmp / "k.weights.h5", "--to", "keras"],
    ):  # fmt: skip
        result = click.testing.CliRunner().invoke(command_group(), [*map(str, words)])
        assert result.exit_code == 0, f"{words[0]}: {result.output[-300:]} {result.exception!r}"


def find_libcudnn(tmp):
    from pycudnnrnn import errors, libcudnn

    for name in ("PYCUDNNRNN_LIBRARY", "CUDNN_PATH", "CUDA_PATH"):
        os.environ.pop(name, None)
    expected = "cudnn64_9.dll" if sys.platform == "win32" else "no cuDNN for macOS"
    with pytest.raises(errors.EngineError, match=expected):
        libcudnn.load()


def main():
    system, *names = sys.argv[1:]
    import_others()
    take_away(system)
    warnings.filterwarnings("error", category=EncodingWarning, module="pycudnnrnn")
    outcomes = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            outcomes[name] = ""
            try:
                globals()[name](pathlib.Path(folder))
            except BaseException:  # noqa: BLE001  whatever it is, it is what the system would show
                outcomes[name] = traceback.format_exc()
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main()
