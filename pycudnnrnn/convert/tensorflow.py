"""TensorFlow 1.x: the variables of `CudnnCompatibleLSTMCell`, `CudnnCompatibleGRUCell`, `BasicRNNCell` and `LSTMCell`.

The names of the compatible cells are those that tf.contrib.cudnn_rnn wrote to checkpoints. TF keeps only the sum of a
gate's two biases. So that reading them back is exact, the two are written as well, under TF 1.3's names `bias_cudnn_0`
and `bias_cudnn_1`. Layers and saveables use the same names and shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from pycudnnrnn._checks import Assumption, shorten, warn
from pycudnnrnn._forms import Array
from pycudnnrnn._tf1 import tensors as tf1
from pycudnnrnn._tf1.tensors import AVERAGE, MODES, STACKED_GATES
from pycudnnrnn.convert.exchange import Canonical, assemble, check_target, split
from pycudnnrnn.convert.named import Named, completed, flag, plain_mode, under
from pycudnnrnn.convert.stacks import STACKS, Cell, Layers, Stack, choose, stacks_of
from pycudnnrnn.errors import ArgumentError, ConvertError
from pycudnnrnn.spec import BiasMode, Direction, InputMode, LSTMGate, RNNMode, RNNSpec

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy

_PEEPHOLES = frozenset({"w_f_diag", "w_i_diag", "w_o_diag", "wci", "wcf", "wco"})


def to_canonical(
    arrays: Any,
    *,
    prefix: str = "",
    layers: Sequence[str | tuple[str, str]] | None = None,
    activation: Literal["tanh", "relu"] | None = None,
    forget_bias: float | None = None,
    ema: bool = False,
) -> Canonical:
    """Read the variables of one RNN in a TensorFlow 1.x checkpoint.

    The cells are `CudnnCompatibleLSTMCell`, `CudnnCompatibleGRUCell`, `BasicRNNCell`, and TF's own LSTMs, such as
    `LSTMCell`, `BasicLSTMCell`, `LSTMBlockCell` and `LSTMBlockFusedCell`, in scopes of any name. TF 1.0's names
    `weights` and `biases` are read as well.

    - One bias per gate becomes cuDNN's single input bias. The GRU's candidate has two biases, so a GRU gets double
      biases, and those of its gates become the input bias.
    - If `bias_cudnn_0` and `bias_cudnn_1` are stored with `bias`, and their sum is `bias`, they become double biases.
      Otherwise a cell was trained further, and `bias` is used.
    - `projection/kernel` gives the LSTM a projection. A first kernel without rows for the input means skip input.

    Other variables (slots of optimizers, `opaque_kernel`, other layers) are left out, and a warning names them.

    Args:
        arrays: the variables by name, as `checkpoint.read_tensorflow` returns them.
        prefix: the scope of the RNN, such as "cudnn_lstm", or of one cell, with or without its slash. If a scope has an
            RNN in one direction and one in both, add "rnn" or "bidirectional_rnn". Default: "".
        layers: the scope of each layer's cell from the bottom, or a pair (forward, backward) of scopes. The beginning
            of a scope or a part of it will do. Other variables are left out. None: the names decide. Default: None.
        activation: "tanh" or "relu". It is required for `BasicRNNCell`, since CudnnRNNTanh and CudnnRNNRelu write the
            same names. Default: None.
        forget_bias: the number that TF's own LSTMs add to the forget gate at run time. It is added to that gate's bias.
            None: 1.0, their default, with a warning. Default: None.
        ema: True reads the values of `ExponentialMovingAverage` in place of the variables. Default: False.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: a key that is missing or unexpected, an array of the wrong shape, another activation, an RNN that
            neither `prefix` nor `layers` chooses, peepholes, or `GRUCell`, whose reset gate acts before the recurrent
            product.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> cell = "rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell"
        >>> arrays = {f"{cell}/kernel": np.ones((3 + 4, 16)), f"{cell}/bias": np.ones(16)}
        >>> convert.tensorflow.to_canonical(arrays).spec
        RNNSpec('lstm', 1, 4, 3, dtype='float64', bias_mode='single_input')

    Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (r1.15), r1.3 for the pair;
    tensorflow/python/ops/rnn_cell_impl.py (r1.15).
    """
    if activation is not None:
        plain_mode("tensorflow", activation)
    named, averages = Named("tensorflow", arrays), flag("tensorflow", "ema", ema)
    by_scope = _cells_in(named, averages=averages)
    prefix = completed("tensorflow", prefix, "/")
    rows = _chosen(named, by_scope, prefix, layers)
    cells = [by_scope[cell.scope] for row in rows for cell in row]
    spec = _spec_of(named, cells, len(rows[0]), activation)
    names: dict[str, str] = {}
    for p, cell in enumerate(cells):
        of_cell = list(tf1.cell_tensors(spec, p // spec.num_dirs))
        paired = any(name in cell.names for t in of_cell if t.kind == "pair" for name in tf1.names_of(t.name))
        for t in of_cell:
            key_of = next((cell.names[n] for n in tf1.names_of(t.name) if n in cell.names), cell.scope + t.name)
            names |= {tf1.cell_scope(spec, p) + t.name: key_of} if t.kind != "pair" or paired else {}
    shapes = {t.name: t.shape for t in tf1.tf_tensors(spec)}
    tensors = {name: named.take(key, *shapes[name]) for name, key in names.items()}
    scopes = tuple(cell.scope for cell in cells)
    named.leave_out(lambda key: not key.startswith(prefix if layers is None else scopes))
    keys = {key.removesuffix(AVERAGE) for key in names.values()}
    if aside := named.leave_out(lambda key: not key.startswith(scopes) or key in keys or tf1.is_below(key, keys)):
        unread = not averages and any(key + AVERAGE in named for key in keys)
        warn(f"left out, because no cell has them: {aside}{'; ema=True reads the averages' * unread}")
    named.finish()
    kind = cells[0].kind
    dtype = next(iter(tensors.values())).dtype
    weights, biases = tf1.from_tf(spec, tensors, halve=False)
    if spec.mode is RNNMode.LSTM and kind not in MODES:
        biases = _with_forget_bias(biases, kind, forget_bias, len(biases) // spec.num_pseudo_layers)
    elif forget_bias is not None:
        raise ConvertError("tensorflow", "forget_bias", f"{kind} adds nothing to its forget gate")
    return Canonical(spec.replace(dtype=dtype), tuple(map(np.array, weights)), tuple(map(np.array, biases)))


def from_canonical(
    c: Canonical,
    *,
    prefix: str = "",
    keep_biases_apart: bool = True,
    cell: Literal["lstm_cell", "basic_lstm_cell"] | None = None,
    forget_bias: float | None = None,
) -> dict[str, Array]:
    """Write the variables of the matching cells of tf.contrib.cudnn_rnn, or of TF's own LSTM cells.

    Args:
        c: the model to write: its spec, weights and biases.
        prefix: the scope that all names begin with, such as "cudnn_lstm", with or without its slash. Default: "".
        cell: "lstm_cell" or "basic_lstm_cell" writes the variables of `LSTMCell` or `BasicLSTMCell`. None: those of the
            cells of tf.contrib.cudnn_rnn. Default: None.
        forget_bias: the number that this cell adds to its forget gate at run time, its argument `forget_bias`. It is
            taken off the bias that is written. None: 1.0, the cell's default. Default: None.
        keep_biases_apart: True writes `bias_cudnn_0` and `bias_cudnn_1` in addition to their sum `bias`, so that
            reading them back is exact. False leaves them out; TF's cells do not have them. Default: True.

    Returns:
        The arrays by name, as a dict of NumPy arrays.

    Raises:
        ConvertError: cell clipping, which the cells do not have; with `cell`, a model that is no LSTM, or a projection
            in a `BasicLSTMCell`.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnRNNTanh(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> arrays = convert.tensorflow.from_canonical(c, keep_biases_apart=False)
        >>> list(arrays)  # doctest: +NORMALIZE_WHITESPACE
        ['rnn/multi_rnn_cell/cell_0/basic_rnn_cell/kernel',
         'rnn/multi_rnn_cell/cell_0/basic_rnn_cell/bias']
    """
    check_target("tensorflow", c, projection=cell != "basic_lstm_cell")
    apart = flag("tensorflow", "keep_biases_apart", keep_biases_apart) and c.spec.bias_mode is BiasMode.DOUBLE
    if cell is not None:
        if cell not in ("lstm_cell", "basic_lstm_cell") or c.spec.mode is not RNNMode.LSTM:
            what = "expecting 'lstm_cell' or 'basic_lstm_cell' for an LSTM"
            raise ConvertError("tensorflow", "cell", f"{what}, got {shorten(cell)} for {str(c.spec.mode)!r}")
        layers = split("tensorflow", c.double_biases(), projection=True)
        c, apart = assemble("tensorflow", c.spec.mode, layers, c.spec.num_dirs), False
    elif forget_bias is not None:
        raise ConvertError("tensorflow", "forget_bias", "only TF's own cells add one: give `cell` as well")
    if c.spec.mode is RNNMode.GRU and c.biases:
        c = c.double_biases()  # its candidate has two biases in TF, whatever the gates have
    arrays = tf1.to_tf(c.spec, c.weights, c.biases)
    arrays = {t.name: arrays[t.name] for t in tf1.tf_tensors(c.spec) if t.kind != "pair" or apart}
    if cell is not None:
        arrays = {name.replace(tf1.CELL_NAMES[RNNMode.LSTM], cell): array for name, array in arrays.items()}
        U, added = c.spec.num_units, _forget_bias(1.0 if forget_bias is None else forget_bias)
        forget = STACKED_GATES[RNNMode.LSTM].index(LSTMGate.FORGET) * U
        for name, array in arrays.items():
            if name.endswith("/bias"):
                array[forget : forget + U] -= array.dtype.type(added)
    return under("tensorflow", prefix, arrays)


def _with_forget_bias(biases: list[Array], cell: str, forget_bias: float | None, each: int) -> list[Array]:
    """Add the number that the cell adds at run time to the forget gate's input bias. A cell has `each` biases."""
    if forget_bias is None:
        forget_bias = 1.0
        text = f"{cell} adds forget_bias to its forget gate when it runs: 1.0, its default, was added to the bias"
        warn(f"{text}; forget_bias=... says another", Assumption)
    forget_bias = _forget_bias(forget_bias)
    forget = range(int(LSTMGate.FORGET), len(biases), each or 1)
    return [(b + b.dtype.type(forget_bias)) if i in forget else b for i, b in enumerate(biases)]


def _forget_bias(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ConvertError("tensorflow", f"forget_bias {shorten(value)}", "expecting a finite number")
    return value


def _stacks(arrays: Any) -> list[Stack]:
    """Return the RNNs among TensorFlow's variables, for a list to choose from."""
    return _stacks_in(_cells_in(Named("tensorflow", arrays), averages=False))


def _cells_in(named: Named, *, averages: bool) -> dict[str, tf1.Cell]:
    shapes = {key: named.shape_of(key) for key in named}
    return {cell.scope: cell for cell in tf1.find_cells(shapes, averages=averages)}


def _chosen(named: Named, by_scope: dict[str, tf1.Cell], prefix: str, layers: Any) -> Layers:
    places = _places(by_scope.values())
    if len(places) > 1:  # what has the shapes of a cell and no scope would come before the RNN
        places = [cell for cell in places if cell.scope]
    apart = [cell.scope for cell in places if prefix in cell.prefixes and by_scope[cell.scope].apart]
    if layers is None and apart:
        why = "each direction has layers of its own, where in cuDNN each layer sees both below it"
        raise ConvertError("tensorflow", shorten(apart[0]), why)
    return choose(named, places, prefix, layers, _stacks_in(by_scope))


def _places(cells: Iterable[tf1.Cell]) -> list[Cell]:
    places = []
    for c in cells:
        stack = f"{c.above}{c.within}/" if c.within else c.scope
        prefixes = (stack, c.above) if c.certain and c.within else (stack,)
        places.append(Cell(c.scope, c.names, stack, c.layer, c.side == "bw", prefixes, c.scope))
    return places


def _stacks_in(by_scope: dict[str, tf1.Cell]) -> list[Stack]:
    """Return the RNNs with the names of cells; if there are none, whatever has the shapes of cells."""
    cells = _places([cell for cell in by_scope.values() if cell.certain] or by_scope.values())
    above = {(cell.stack, cell.prefixes[-1]) for cell in cells}

    def prefix_of(cell: Cell) -> str:
        shortest = cell.prefixes[-1]
        several = sum(other == shortest for _, other in above) > 1
        return cell.stack if several or shortest[-1:].isalnum() or shortest.endswith("_") else shortest

    certain = any(cell.certain for cell in by_scope.values())
    return [stack._replace(certain=certain) for stack in stacks_of(cells, prefix_of)]


def _spec_of(named: Named, cells: list[tf1.Cell], num_dirs: int, activation: str | None) -> RNNSpec:
    """Return the spec of these cells, by the names and the first cell's shapes."""
    first = cells[0]
    kinds = {(MODES.get(cell.kind), "gates/kernel" in cell.names) for cell in cells}
    if len(kinds) > 1:
        named.refuse(first.scope, f"expecting one kind of cell, got {', '.join(sorted({cell.kind for cell in cells}))}")
    for cell in cells:
        for part, key in cell.names.items():
            if part == "candidate/kernel":
                named.refuse(key, "another cell, GRUCell: its reset gate comes before the product, cuDNN's after it")
            if part in _PEEPHOLES:
                named.refuse(key, "is a peephole, which cuDNN's LSTM does not have")
    gru = "gates/kernel" in first.names
    mode = RNNMode.GRU if gru else MODES.get(first.kind, RNNMode.LSTM)
    if mode is RNNMode.RNN_TANH and activation is None:
        why = "nothing says whether it is of CudnnRNNTanh or CudnnRNNRelu, which write the same: 'tanh' or 'relu'"
        raise ConvertError("tensorflow", "activation", why)
    mode = plain_mode("tensorflow", activation) if activation and mode is RNNMode.RNN_TANH else mode
    rows = named.shape(first.names["gates/kernel" if gru else "kernel"], 2)[0]
    U = first.num_units
    P = named.shape(first.names["projection/kernel"], 2)[1] if "projection/kernel" in first.names else None
    skip = rows == (P or U)
    bias_mode = BiasMode.NONE
    if any("bias" in part for part in first.names):
        pair = gru or any("bias_cudnn" in part for cell in cells for part in cell.names)
        bias_mode = BiasMode.DOUBLE if pair else BiasMode.SINGLE_INPUT
    inputs, input_mode = (U, InputMode.SKIP_INPUT) if skip else (rows - (P or U), InputMode.LINEAR_INPUT)
    direction = Direction.BIDIRECTIONAL if num_dirs == 2 else Direction.UNIDIRECTIONAL
    L = len(cells) // num_dirs
    try:
        return RNNSpec(mode, L, U, inputs, input_mode, direction, num_proj=P, bias_mode=bias_mode)
    except ArgumentError as error:
        raise ConvertError("tensorflow", f"{mode} of {U} units", str(error)) from error


STACKS["tensorflow"] = _stacks
