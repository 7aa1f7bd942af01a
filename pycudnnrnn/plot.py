"""Pictures of a params buffer, of the gates over time, and of gradients. They need matplotlib (extra "plot").

Each `draw_` function writes one file atomically: PNG, SVG or PDF. It opens no window and needs no display.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import check_int, check_text, check_type, needs, one_of
from pycudnnrnn._files import check_target, write_atomically
from pycudnnrnn.canonical import from_canonical, to_canonical
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.layout import ParamLayout, Region, arithmetic_layout, differences
from pycudnnrnn.spec import GATES, RNNMode, RNNSpec
from pycudnnrnn.testing import reference

with needs("matplotlib", "plot", "drawing"):
    from matplotlib import rc_context
    from matplotlib.colors import LogNorm, to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.patheffects import withStroke

__all__ = ["PSEUDO_LAYERS_MAX", "SUFFIXES", "draw_gates", "draw_gradient_norms", "draw_layout", "gate_activations"]
__dir__ = __all__.copy

Place = str | PathLike[str]

PSEUDO_LAYERS_MAX: Final = 64
"""Most pseudo-layers in a picture. Viewers cannot show larger pictures."""

SUFFIXES: Final = (".png", ".svg", ".pdf")
"""The suffixes that a picture's name can have."""

MARK: Final = "#cc0000"

GATE_COLOURS: Final = {
    "input": "#4477aa", "forget": "#ee6677", "new": "#ccbb44", "output": "#228833", "reset": "#66ccee",
    "update": "#aa3377", "hidden": "#4477aa", "projection": "#bbbbbb",
}  # fmt: skip
"""One colour per gate, from Paul Tol's bright scheme, which works without colour vision."""


def draw_layout(layout: ParamLayout, path: Place, title: str = "params", expected: ParamLayout | None = None) -> None:
    """Draw the layout of a params buffer.

    The strip at the top shows the buffer to scale. Below it, each region is a box of the same size. Each pseudo-layer
    (one layer in one direction) has a row of weights and a row of biases. A box shows the gate, the linear-layer id,
    the symbol (W input, R recurrent, P projection), the shape, and the offset in elements.

    Args:
        layout: the layout to draw, from `op.layout()`.
        path: the file to write. Its suffix decides the format: .png, .svg or .pdf. An existing file is replaced.
        title: text above the picture, followed by the number of elements. Default: "params".
        expected: a second layout of the same RNN. Regions that have another offset there are framed, and their boxes
            show that offset. Default: None.

    Raises:
        ArgumentError: another suffix, a path to something other than a regular file, or more than 64 pseudo-layers.
        ArgumentTypeError: not a layout.
        OSError: the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> from pycudnnrnn import ops, plot
        >>> layout = ops.CudnnGRU(1, num_units=3, input_size=2).layout()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     plot.draw_layout(layout, f"{folder}/layout.svg")
        ...     os.listdir(folder)
        ['layout.svg']
    """
    check_text("title", title)
    check_type("layout", layout, ParamLayout, "a ParamLayout: op.layout()")
    target = _target(path)
    check_int("pseudo-layers to draw", 1 + max(r.pseudo_layer for r in layout.regions), 1, PSEUDO_LAYERS_MAX)
    by_kind: dict[str, list[Region]] = {}
    for region in layout.regions:
        kind = "weights" if region.kind == "weight" else "biases"
        by_kind.setdefault(f"{kind}\npseudo-layer {region.pseudo_layer}", []).append(region)
    rows = list(by_kind.items())
    columns = max(len(regions) for _, regions in rows)
    elsewhere = {} if expected is None else differences(layout, expected)
    width = 2.2 + 1.35 * max(columns, 4)
    strip_height, row_height = 0.8, 0.62
    lines = textwrap.wrap(f"{title}: {layout.size:,} elements", int(width * 11))
    figure = _figure(width, 1.4 + 0.2 * len(lines) + strip_height + row_height * len(rows))
    strip, boxes = figure.subplots(2, 1, height_ratios=[strip_height, row_height * len(rows)])

    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11)
    strip.barh(0, layout.size, left=0, color="white", hatch="////", edgecolor="#dddddd", linewidth=0)
    for region in layout.regions:
        strip.barh(0, region.size, left=region.offset, **_box_style(region))
    strip.set(xlim=(0, layout.size), yticks=[])
    strip.set_xlabel("offset [elements]; strong: weights, pale: biases", fontsize=9)
    strip.xaxis.set_major_formatter("{x:,.0f}")
    strip.tick_params(labelsize=8)

    for y, (_, regions) in enumerate(rows):
        for x, region in enumerate(regions):
            boxes.barh(y, 0.94, left=x, height=0.86, **_box_style(region))
            shape = " × ".join(map(str, region.shape))
            text = f"{region.gate}\nid {region.lin_layer_id}  {region.symbol}  {shape}\n"
            text += f"@ {region.offset:,}" if region.size else "no elements"
            if region.key in elsewhere:
                boxes.barh(y, 0.94, left=x, height=0.86, fill=False, edgecolor=MARK, linewidth=2, linestyle="--")
                other = elsewhere[region.key][1]
                text += f" ≠ {'nowhere' if other is None else f'{other.offset:,}'}"
            boxes.text(x + 0.47, y, text, ha="center", va="center", fontsize=7.5, linespacing=1.25)
    boxes.set(xlim=(0, columns), ylim=(len(rows) - 0.5, -0.5), xticks=[])
    boxes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    boxes.tick_params(length=0)
    boxes.spines[:].set_visible(False)
    gates = dict.fromkeys(region.gate for region in layout.regions)
    handles = [Patch(color=_mixed(gate, 0.75), label=gate) for gate in gates]
    if sum(region.size for region in layout.regions) < layout.size:
        handles.append(Patch(facecolor="white", edgecolor="#cccccc", hatch="////", label="padding"))
    if elsewhere.keys() - {"size"}:
        handles.append(Patch(fill=False, edgecolor=MARK, linestyle="--", label="not where it is expected (≠ there)"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    _save(figure, target)


def draw_gradient_norms(d_params: Any, layout: ParamLayout, path: Place, title: str = "gradient norms") -> None:
    """Draw a table of the Euclidean norms of a gradient: one row for each pseudo-layer, one column for each region.

    The column titles are a symbol (W and bW: input, R and bR: recurrent, P: projection) with the linear-layer id, and
    the gate. A zero is white. A norm that is not finite is white with red text.

    Args:
        d_params: gradient of the params, [layout.size], of any library on any device. A params buffer works, too.
        layout: layout of that buffer, from `op.layout()`.
        path: the file to write. Its suffix decides the format: .png, .svg or .pdf. An existing file is replaced.
        title: text above the picture. Default: "gradient norms".

    Raises:
        ArgumentError: another shape, another suffix, a path to something other than a regular file, or more than 64
            pseudo-layers.
        ArgumentTypeError: not a layout.
        OSError: the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from pycudnnrnn import ops, plot
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> x = np.ones((5, 1, 2), "float32")
        >>> fwd = op.forward(x, None, op.init_params(seed=1))
        >>> d_params = fwd.backward(np.ones_like(fwd.output)).params
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     plot.draw_gradient_norms(d_params, op.layout(), f"{folder}/norms.svg")
        ...     os.listdir(folder)
        ['norms.svg']
    """
    check_text("title", title)
    check_type("layout", layout, ParamLayout, "a ParamLayout: op.layout()")
    target = _target(path)
    flat = _arrays.host_values("d_params", d_params).astype(np.float64)
    if flat.shape != (layout.size,):
        raise ArgumentError("d_params", f"({layout.size},)", flat.shape, aspect="shape")
    count = check_int("pseudo-layers to draw", 1 + max(r.pseudo_layer for r in layout.regions), 1, PSEUDO_LAYERS_MAX)
    columns = list(dict.fromkeys((r.symbol, r.lin_layer_id, r.gate) for r in layout.regions))
    norms = np.full((count, len(columns)), np.nan)
    has_elements = np.zeros(norms.shape, bool)
    for region in layout.regions:
        place = region.pseudo_layer, columns.index((region.symbol, region.lin_layer_id, region.gate))
        has_elements[place] = region.size > 0
        norms[place] = np.linalg.norm(flat[region.slice])
    figure = _figure(2.6 + 0.72 * len(columns), 2.0 + 0.36 * count)
    axes = figure.subplots()
    positive = norms[np.isfinite(norms) & (norms > 0)]
    scale = LogNorm(positive.min(), max(positive.max(), positive.min() * 1.0001)) if positive.size else None
    image = axes.imshow(np.ma.masked_invalid(np.where(norms > 0, norms, np.nan)), "cividis", scale, aspect="auto")
    for y, x in zip(*np.nonzero(has_elements), strict=True):
        colour = "black" if np.isfinite(norms[y, x]) else MARK
        number = axes.text(x, y, f"{norms[y, x]:.2g}", ha="center", va="center", fontsize=7, color=colour)
        number.set_path_effects([withStroke(linewidth=2, foreground="white")])  # legible on dark colours, too
    names = [f"{symbol}{id_}\n{gate}" for symbol, id_, gate in columns]
    axes.set_xticks(range(len(columns)), names, fontsize=7)
    axes.set_yticks(range(count), map(str, range(count)), fontsize=8)
    axes.set(title=title, ylabel="pseudo-layer", xlabel="W: input, R: recurrent, P: projection, b: bias; with its id")
    axes.tick_params(length=0)
    if positive.size:
        figure.colorbar(image, label="Euclidean norm", shrink=0.9)
    _save(figure, target)


def draw_gates(
    spec: RNNSpec,
    canonical: tuple[Sequence[Array], Sequence[Array]],
    input_data: Array,
    path: Place,
    *,
    pseudo_layer: int = 0,
    input_h: Array | None = None,
    input_c: Array | None = None,
    title: str | None = None,
) -> None:
    """Draw the gates of one pseudo-layer over time, for one sequence and without dropout.

    The gates come from `testing.reference`, which is not optimised: long sequences take a while.

    Letters: T steps, I inputs, L layers, D directions, U units, P projected units.

    Args:
        spec: description of the RNN.
        canonical: the pair (weights, biases) from `op.params_to_canonical`.
        input_data: one sequence, [T, I].
        path: the file to write. Its suffix decides the format: .png, .svg or .pdf. An existing file is replaced.
        pseudo_layer: which layer and direction to draw: layer * D + direction. Default: 0.
        input_h: h before the first step, [L * D, U], or [L * D, P] with a projection. None: zeros. Default: None.
        input_c: c of an LSTM before the first step, [L * D, U]. None: zeros. Default: None.
        title: text above the picture. None: the layer and the direction. Default: None.

    Raises:
        ArgumentError: another shape, a pseudo-layer that does not exist, another suffix, or a path to something other
            than a regular file.
        ArgumentTypeError: not an `RNNSpec`, or not a pair of lists.
        OSError: the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from pycudnnrnn import ops, plot
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> canonical = op.params_to_canonical(op.init_params(seed=1))
        >>> x = np.ones((5, 2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     plot.draw_gates(op.spec, canonical, x, f"{folder}/gates.svg")
        ...     os.listdir(folder)
        ['gates.svg']
    """
    check_type("spec", spec, RNNSpec, "an RNNSpec: op.spec")
    p = check_int("pseudo_layer", pseudo_layer, 0, spec.num_pseudo_layers - 1)
    layer, direction = divmod(p, spec.num_dirs)
    default = f"gates of layer {layer}, {('forward', 'backward')[direction]}"
    title = default if title is None else check_text("title", title)
    target = _target(path)
    gates = gate_activations(spec, canonical, input_data, input_h, input_c)[p]
    T, G, U = gates.shape
    figure = _figure(min(14, max(6, 1.5 + 0.12 * T)), 0.8 + 1.7 * G)
    panels = figure.subplots(G, 1, sharex=True, squeeze=False)[:, 0]
    relu = spec.mode is RNNMode.RNN_RELU
    highest = max(float(gates.max(initial=0)), 1e-30) if relu else 1.0
    for g, (panel, gate) in enumerate(zip(panels, GATES[spec.mode], strict=True)):
        tanh = gate.name in {"NEW", "HIDDEN"} and not relu
        low, high, colours = (-1.0, 1.0, "PuOr") if tanh else (0.0, highest, "cividis")
        image = panel.imshow(gates[:, g].T, colours, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        panel.set_title(gate.name.lower(), loc="left", fontsize=9)
        panel.set_ylabel("unit")
        panel.set_yticks(sorted({0, U - 1}))
        figure.colorbar(image, ax=panel, pad=0.01)
    panels[-1].set_xlabel("step")
    figure.suptitle(title, fontsize=11)
    _save(figure, target)


def gate_activations(
    spec: RNNSpec,
    canonical: tuple[Sequence[Array], Sequence[Array]],
    input_data: Array,
    input_h: Array | None = None,
    input_c: Array | None = None,
) -> Array:
    """Compute the gates of every pseudo-layer for one sequence, without dropout. `draw_gates` draws them.

    Letters: T steps, I inputs, L layers, D directions, G gates, U units, P projected units.

    Args:
        spec: description of the RNN.
        canonical: the pair (weights, biases) from `op.params_to_canonical`.
        input_data: one sequence, [T, I].
        input_h: h before the first step, [L * D, U], or [L * D, P] with a projection. None: zeros. Default: None.
        input_c: c of an LSTM before the first step, [L * D, U]. None: zeros. Default: None.

    Returns:
        The gates after their activation function, [L * D, T, G, U], in the order of the linear-layer ids, in float64.

    Raises:
        ArgumentError: an array of another shape.
        ArgumentTypeError: not an `RNNSpec`, or not a pair of lists.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops, plot
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> canonical = op.params_to_canonical(op.init_params(seed=1))
        >>> plot.gate_activations(op.spec, canonical, np.ones((5, 2))).shape
        (1, 5, 3, 3)
    """
    check_type("spec", spec, RNNSpec, "an RNNSpec: op.spec")
    check_type("canonical", canonical, tuple, "the pair (weights, biases), as op.params_to_canonical returns it")
    layout = arithmetic_layout(spec)
    params = np.zeros(layout.size)
    weights, biases = ([_arrays.host_values("canonical", array) for array in arrays] for arrays in canonical)
    from_canonical(weights, biases, layout, params)
    x = _arrays.host_values("input_data", input_data)
    if x.ndim != 2 or x.shape[1] != spec.input_size:
        raise ArgumentError("input_data", f"(T, {spec.input_size}), one sequence", x.shape, aspect="shape")
    states = []
    for name, state, width in (("input_h", input_h, spec.state_size), ("input_c", input_c, spec.num_units)):
        shape = (spec.num_pseudo_layers, width)
        states.append(np.zeros(shape) if state is None else _arrays.host_values(name, state))
        if states[-1].shape != shape:
            raise ArgumentError(name, f"{shape}", states[-1].shape, aspect="shape")
    gates = np.zeros((spec.num_pseudo_layers, len(x), 1, spec.num_gates, spec.num_units))
    hx, cx = (state[:, None] for state in states)
    reference.forward(spec, *to_canonical(params, layout), x[:, None], hx, cx, [len(x)], gates)
    return gates[:, :, 0]


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def _target(path: Place) -> Path:
    target = Path(path)
    if target.suffix not in SUFFIXES:
        raise ArgumentError("path", f"a name that ends in {one_of(list(SUFFIXES))}", repr(str(path)))
    check_target(target)
    return target


def _save(figure: Figure, target: Path) -> None:
    image, kind = io.BytesIO(), target.suffix[1:]
    dated = {"svg": "Date", "pdf": "CreationDate"}  # without dates, the same picture gives the same file
    with rc_context({"svg.hashsalt": "pycudnnrnn"}):
        figure.savefig(image, format=kind, metadata={dated[kind]: None} if kind in dated else None)
    write_atomically(target, image.getvalue())


def _box_style(region: Region) -> dict[str, Any]:
    colour = _mixed(region.gate, 0.75 if region.kind == "weight" else 0.4)
    return {"color": colour, "edgecolor": "white", "linewidth": 0.5}


def _mixed(gate: str, part: float) -> tuple[float, float, float]:
    """Mix a gate's colour with white, so that text stays legible. The result is opaque."""
    red, green, blue = (1 - part + part * value for value in to_rgb(GATE_COLOURS[gate]))
    return red, green, blue
