"""The public name of `_libcudnn`, for `import pycudnnrnn.libcudnn`."""

import sys

from pycudnnrnn import _libcudnn
from pycudnnrnn._libcudnn import *  # noqa: F403  for type checkers: below, the module itself takes this name

sys.modules[__name__] = _libcudnn
