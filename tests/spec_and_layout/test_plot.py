"""Pictures: what is in them, how they are written, and what they refuse."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pycudnnrnn import ops, plot
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.layout import ParamLayout, Region, arithmetic_layout
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing import reference
from pycudnnrnn.testing.strategies import problems, specs
from tests.helpers.examples import examples


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved, beside their files."""
    saved, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *args, **named: saved.append(self) or save(self, *args, **named)
    )
    return saved


def texts_of(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def overlaps(figure):
    """Pairs of texts and tick labels of a figure that lie over one another."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = [t for axes in figure.axes for t in (*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels())]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    boxes = [t.get_window_extent(renderer).padded(-0.5) for t in texts if t.get_text() and t.get_visible()]
    return [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]


LAYOUTS = [
    RNNSpec("lstm", 4, 2000, 900, direction="bidirectional", num_proj=512),
    RNNSpec("gru", 2, 6, 6, input_mode="skip_input"),
    RNNSpec("rnn_relu", 1, 6, 4, bias_mode="none"),
]


@pytest.mark.parametrize("spec", LAYOUTS, ids=lambda spec: str(spec.mode))
def test_every_region_is_in_the_picture_with_its_offset_and_nothing_overlaps(spec, figures, tmp_path):
    layout = arithmetic_layout(spec)
    plot.draw_layout(layout, tmp_path / "a.png", title=repr(spec))
    (figure,) = figures
    texts = texts_of(figure)
    assert len(texts) == len(layout.regions)
    for region, text in zip(layout.regions, texts, strict=True):
        first, second, third = text.split("\n")
        assert first == region.gate
        assert second.split()[:3] == ["id", str(region.lin_layer_id), region.symbol]
        assert third == (f"@ {region.offset:,}" if region.size else "no elements")
    assert not overlaps(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(dict.fromkeys(r.gate for r in layout.regions))


def test_regions_that_lie_elsewhere_are_marked(figures, tmp_path):
    spec = RNNSpec("gru", 1, 6, 5)
    predicted = arithmetic_layout(spec)
    a, b, *rest = predicted.regions
    swapped = ParamLayout(
        predicted.size + 1,
        (Region(*a.key[:2], a.gate, a.kind, b.offset, a.shape), Region(*b.key[:2], b.gate, b.kind, 0, b.shape), *rest),
    )
    plot.draw_layout(swapped, tmp_path / "a.png", expected=predicted)
    marked = [text for text in texts_of(figures[0]) if "≠" in text]
    assert [text.split("\n")[2] for text in marked] == ["@ 30 ≠ 0", "@ 0 ≠ 30"]
    legend = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert legend[-2:] == ["padding", "not where it is expected (≠ there)"]
    assert not overlaps(figures[0])


def test_gradient_norms_are_those_of_each_region(figures, tmp_path):
    op = ops.CudnnLSTM(2, 6, 5, direction="bidirectional", num_proj=3, dtype="float64")
    layout = op.layout()
    d_params = np.random.default_rng(0).normal(size=layout.size)
    d_params[layout.regions[5].slice] = 0
    d_params[[layout.regions[9].offset, layout.regions[11].offset]] = np.nan, np.inf
    plot.draw_gradient_norms(d_params, layout, tmp_path / "a.png")
    axes = figures[0].axes[0]
    names = [label.get_text().split("\n") for label in axes.get_xticklabels()]
    written = {(round(t.get_position()[1]), *names[round(t.get_position()[0])]): t.get_text() for t in axes.texts}
    assert len(written) == len(layout.regions)
    for region in layout.regions:
        name = f"{region.symbol}{region.lin_layer_id}"
        norm = np.sqrt((d_params[region.slice] ** 2).sum())
        assert written[region.pseudo_layer, name, region.gate] == f"{norm:.2g}"
    assert not overlaps(figures[0])
    skip = ops.CudnnGRU(1, 4, 4, input_mode="skip_input")
    plot.draw_gradient_norms(np.full(skip.params_size(), 6e4, "f2"), skip.layout(), tmp_path / "skip.png")
    assert "inf" not in texts_of(figures[-1])
    assert len(texts_of(figures[-1])) == 9  # the three input matrices are not there


@examples(30)
@given(problems(specs(projection=False), max_batch=1))
def test_gate_activations_lead_to_the_engines_output(problem):
    """From the gates alone, the last state follows: what is drawn is what the engine computes."""
    spec, T = problem.spec, len(problem.x)
    canonical = problem.op.params_to_canonical(problem.params)
    gates = plot.gate_activations(spec, canonical, problem.x[:, 0], problem.hx[:, 0], problem.cx[:, 0])
    assert gates.shape == (spec.num_pseudo_layers, T, spec.num_gates, spec.num_units)
    whole = dataclasses.replace(problem, lengths=None).forward()
    for p in range(spec.num_pseudo_layers):
        h, c = problem.hx[p, 0], problem.cx[p, 0]
        for g in gates[p] if p % spec.num_dirs == 0 else gates[p, ::-1]:
            if spec.mode == "gru":
                h = (1 - g[1]) * g[2] + g[1] * h
            elif spec.mode == "lstm":
                c = g[1] * c + g[0] * g[2]
                c = reference.clip(c, *spec.cell_clip) if spec.cell_clip else c
                h = g[3] * np.tanh(c)
            else:
                h = g[0]
        np.testing.assert_allclose(h, whole.output_h[p, 0], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("kind", [ops.CudnnLSTM, ops.CudnnRNNRelu])
def test_the_gates_of_the_pseudo_layer_that_is_named_are_drawn_over_time(kind, figures, tmp_path):
    op = kind(2, 4, 3, direction="bidirectional")
    canonical, x = op.params_to_canonical(op.init_params(0)), np.ones((5, 3))
    gates = plot.gate_activations(op.spec, canonical, x)[3]
    for title, shown in ((None, "gates of layer 1, backward"), ("mine", "mine")):
        plot.draw_gates(op.spec, canonical, x, tmp_path / "a.svg", pseudo_layer=3, title=title)
        assert figures[-1].get_suptitle() == shown
    panels = {axes.get_title("left"): axes.images[0] for axes in figures[0].axes if axes.images}
    assert np.array_equal([image.get_array().T for image in panels.values()], gates.swapaxes(0, 1))
    limits = {name: image.get_clim() for name, image in panels.items()}
    of_lstm = {"input": (0, 1), "forget": (0, 1), "new": (-1, 1), "output": (0, 1)}
    assert limits == ({"hidden": (0, gates.max())} if kind is ops.CudnnRNNRelu else of_lstm)


LSTM = ops.CudnnLSTM(1, 4, 3)
CANONICAL = LSTM.params_to_canonical(LSTM.init_params(0))
X = np.zeros((5, 3), "f4")


@pytest.mark.parametrize(
    ("draw", "text"),
    [
        (lambda to: plot.draw_layout(LSTM.layout(), to / "a.bmp"), "Invalid path"),
        (lambda to: plot.draw_layout(arithmetic_layout(RNNSpec("gru", 65, 2, 2)), to / "a.png"), "from 1 to 64"),
        (lambda to: plot.draw_gradient_norms(np.zeros(3), LSTM.layout(), to / "a.png"), "Invalid d_params shape"),
        (lambda to: plot.draw_gates(LSTM.spec, CANONICAL, X[:, :2], to / "a.png"), r"input_data shape: \(5, 2\)"),
        (lambda to: plot.draw_gates(LSTM.spec, CANONICAL, X, to / "a.png", pseudo_layer=1), "pseudo_layer: 1"),
        (
            lambda to: plot.draw_gates(LSTM.spec, (CANONICAL[0][1:], []), X, to / "a.png"),
            "weights: 7 arrays, expecting 8",
        ),
        (lambda to: plot.draw_gates(LSTM.spec, CANONICAL, X, to / "a.png", input_c=np.zeros((1, 3))), "input_c shape"),
        (lambda to: plot.draw_layout(LSTM, to / "a.png"), "Invalid layout: .*CudnnLSTM"),
        (lambda to: plot.draw_gradient_norms(LSTM.layout(), X, to / "a.png"), "Invalid layout: .*ndarray"),
        (lambda to: plot.draw_gates(LSTM, CANONICAL, X, to / "a.png"), "Invalid spec: .*CudnnLSTM"),
        (lambda to: plot.draw_gates(LSTM.spec, X, X, to / "a.png"), "Invalid canonical: .*ndarray"),
    ],
)
def test_what_cannot_be_drawn_is_named_and_nothing_is_written(draw, text, tmp_path):
    with pytest.raises(ArgumentError, match=text):
        draw(tmp_path)
    assert not list(tmp_path.iterdir())
