"""The algorithms by name, and an op that chooses among them."""

from pycudnnrnn import ops

STANDARD, STATIC, DYNAMIC, SMALL_H = "standard", "persist_static", "persist_dynamic", "persist_static_small_h"


def gru(**keywords):
    return ops.CudnnGRU(2, 3, 4, algo="auto", **keywords)
