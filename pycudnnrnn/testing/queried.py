"""Layouts that a libcudnn reports without a GPU.

cuDNN's layout calls do not read the handle, which only a GPU can make. NVIDIA does not document that, so a child
process makes the calls: one for each libcudnn, for any number of specs.

State: the child processes, under one lock. A forked process starts new ones.
"""

from __future__ import annotations

import atexit
import io
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, cast

from pycudnnrnn import _discovery, _libcudnn, _locks
from pycudnnrnn._checks import check_type
from pycudnnrnn.engines.cudnn.descriptors import check_params
from pycudnnrnn.engines.cudnn.layout_query import query_without_gpu
from pycudnnrnn.errors import EngineError, PycudnnrnnError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.spec import RNNSpec

CHILD: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; from pycudnnrnn.testing.queried import serve; serve(sys.argv[1])"
)
"""The child's program. Its arguments: the libcudnn, then the parent's `sys.path`."""

_lock: Final = _locks.lock()


def queried_layout(spec: RNNSpec, library: str | os.PathLike[str] | None = None) -> ParamLayout:
    """Ask a libcudnn for the layout of an RNN's params, without a GPU.

    The libcudnn reports the position of each matrix and bias. On cuDNN 8.x both of its layout queries are asked, and
    must agree. The calls need no GPU because they do not read cuDNN's handle (8.9.7 to 9.28). NVIDIA does not document
    that. So the calls run in a child process, and a libcudnn that does read the handle raises an error. Use
    `op.layout("cuda")` to ask on a GPU.

    Args:
        spec: the RNN. For algorithm "auto", "standard" is asked.
        library: the absolute path of the libcudnn to ask. None: the one that `libcudnn.load()` uses. Default: None.

    Returns:
        The layout, as the library reports it.

    Raises:
        ArgumentTypeError: something other than an `RNNSpec`.
        ArgumentError: more than 2**31 - 1 elements of weights or of biases, which no cuDNN has a layout for.
        EngineError: no libcudnn, one that does not support this RNN, or one that ended the child process.
        LayoutError: the library's answers contradict each other or the shapes of the RNN.

    Example:
        >>> from pycudnnrnn import RNNSpec, testing
        >>> layout = testing.queried_layout(RNNSpec("gru", 1, num_units=3, input_size=2))
        >>> layout.region(0, 3, "weight").offset
        18
    """
    return query(spec, library)[0]


def query(spec: RNNSpec, library: str | os.PathLike[str] | None = None) -> tuple[ParamLayout, int]:
    """Return the layout, as `queried_layout` does, and the version of the libcudnn."""
    check_type("spec", spec, RNNSpec, "an RNNSpec")
    check_params(spec)
    path = _discovery.find(_discovery.Context(library))[0].path.resolve()
    with _lock:
        child = _children.get(path) or _children.setdefault(path, _Child(path))
        try:
            answer = child.ask(spec)
        except (EOFError, OSError):
            code = _children.pop(path, child).end()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            reason = f"{path} ended the process that asked it for a layout without a GPU ({how})"
            answer = EngineError(f"{reason}: ask on a GPU, or another libcudnn")
        except BaseException:  # the child's next answer would be that to this question
            _children.pop(path, child).end()
            raise
    if isinstance(answer, PycudnnrnnError):
        raise answer
    layout, version = answer
    return layout, version


class _Child:
    """A process that has loaded one libcudnn."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", CHILD, str(path), *sys.path]
        self._process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        self._input, self._output = cast("io.FileIO", self._process.stdin), cast("io.FileIO", self._process.stdout)
        self._answers = io.BufferedReader(self._output)

    def ask(self, spec: RNNSpec) -> Any:
        """Return the layout and the version, or an error of this package."""
        self._input.write(pickle.dumps(spec))
        return pickle.load(self._answers)  # noqa: S301  the child is this package

    def end(self) -> int:
        """End the process and return its exit code; the code of its own end if it had one."""
        self._process.kill()
        self.leave()
        return self._process.wait()

    def leave(self) -> None:
        """Close this process's ends of the pipes. The child ends when no process has its input open."""
        self._input.close()
        self._output.close()  # not the buffered reader: a fork may leave its lock held


_children: Final[dict[Path, _Child]] = {}


@atexit.register
def _end_all() -> None:
    while _children:
        _children.popitem()[1].end()


def _forked() -> None:
    """Leave the children to the parent process."""
    for child in _children.values():
        child.leave()
        child._process.returncode = 0  # noqa: SLF001  it is not a child of this process
    _children.clear()


if hasattr(os, "register_at_fork"):  # other systems have no fork
    os.register_at_fork(after_in_child=_forked)


def serve(path: str) -> None:
    """Load a libcudnn, and write the layout of each spec on standard input to standard output. For the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what cuDNN prints
        while True:
            try:
                spec = pickle.load(sys.stdin.buffer)  # noqa: S301  the parent is this package
            except EOFError:
                return
            try:
                library = _libcudnn.load(path)
                answer: object = query_without_gpu(library, spec), library.version
            except PycudnnrnnError as error:
                answer = error
            pickle.dump(answer, answers)
            answers.flush()
