"""The public name of `_libcudnn`, for `import pycudnnrnn.libcudnn`."""

import sys

from pycudnnrnn import _libcudnn
from pycudnnrnn._libcudnn import *  # noqa: F403  for type checkers: below, the module itself takes this name
from pycudnnrnn._libcudnn_abi import *  # noqa: F403  mypy reads no `+=` of another module's `__all__`

sys.modules[__name__] = _libcudnn
