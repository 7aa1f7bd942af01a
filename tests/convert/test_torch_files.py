"""State dicts as they lie in files: single cells and stacks of cells, dicts in dicts, two names for one array."""

import numpy as np
import pytest

from pycudnnrnn import convert, ops
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import equal_models, need, random_call, run_ours, worst

need("torch")
import torch  # noqa: E402

KINDS = ["LSTM", "GRU", "RNN"]


def cells_of(kind, inputs, units=4):
    torch.manual_seed(inputs)
    return getattr(torch.nn, f"{kind}Cell")(inputs, units, dtype=torch.float64)


def said(kind):
    return {"nonlinearity": "tanh"} if kind == "RNN" else {}


def run_cells(layers, x, states):
    """Run torch's cells step by step: for each layer the forward cell, and the backward one if there is one."""
    with torch.no_grad():
        for layer in layers:
            sides = []
            for cell, step in zip(layer, (1, -1), strict=False):
                state, ys = states.pop(0), []
                for x_t in x.flip(0) if step < 0 else x:
                    state = cell(x_t, state)
                    ys.append(state[0] if isinstance(state, tuple) else state)
                sides.append(torch.stack(ys[::step]))
            x = torch.cat(sides, 2)
    return x.numpy()


def check(c, layers, kind):
    """Compare a model with torch's cells on random input, from random states."""
    x, hx, cx, _ = random_call(c.spec, 3)
    states = [(torch.tensor(h), torch.tensor(q)) if kind == "LSTM" else torch.tensor(h)
              for h, q in zip(hx, cx if kind == "LSTM" else hx, strict=True)]  # fmt: skip
    op = ops.from_spec(c.spec)
    ours = op(x, hx, *([cx] if kind == "LSTM" else []), op.canonical_to_params(c), is_training=False)[0]
    assert np.abs(ours - run_cells(layers, torch.tensor(x), states)).max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_cell_is_a_model_of_one_layer(kind):
    cell = cells_of(kind, 3)
    check(convert.pytorch.to_canonical(cell.state_dict(), **said(kind)), [[cell]], kind)
    model = torch.nn.ModuleDict({"decoder": torch.nn.ModuleDict({"rnn": cell}), "head": torch.nn.Linear(4, 2)})
    check(convert.pytorch.to_canonical(model.state_dict(), prefix="decoder.rnn", **said(kind)), [[cell]], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_cells_in_a_list_are_a_stack_in_the_order_of_their_numbers_and_a_warning_says_so(kind):
    cells = torch.nn.ModuleList([cells_of(kind, 3), *(cells_of(kind, 4) for _ in range(10))])
    state = torch.nn.ModuleDict({"layers": cells}).state_dict()
    with pytest.warns(UserWarning, match="in the order of their numbers: layers.0, layers.1, "):
        c = convert.pytorch.to_canonical(state, prefix="layers", **said(kind))
    check(c, [[cell] for cell in cells], kind)
    part = convert.pytorch.to_canonical(state, prefix="layers.10", **said(kind))
    check(part, [[cells[10]]], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_caller_orders_cells_of_any_names_in_one_direction_and_in_both(kind):
    names = {"b": 3, "a": 4, "fw": 3, "back": 3, "up.fw": 8, "up.back": 8}
    model = torch.nn.Module()
    for name, inputs in names.items():
        model.add_module(name.replace("up.", "up_"), cells_of(kind, inputs))
    state = {key.replace("up_", "up."): value for key, value in model.state_dict().items()}
    c = convert.pytorch.to_canonical(state, layers=["b", "a"], **said(kind))
    check(c, [[model.b], [model.a]], kind)
    c = convert.pytorch.to_canonical(state, layers=[("fw", "back"), ("up.fw", "up.back")], **said(kind))
    check(c, [[model.fw, model.back], [model.up_fw, model.up_back]], kind)


def test_modules_of_one_layer_each_are_one_stack_if_the_caller_lists_them():
    """salesforce/awd-lstm-lm: a list of nn.LSTM. Here a module of two layers is among them, which is two layers."""
    rnns = torch.nn.ModuleList([torch.nn.LSTM(3, 4), torch.nn.LSTM(4, 4, 2)]).double()
    c = convert.pytorch.to_canonical(rnns.state_dict(), layers=["0", "1"])
    x, hx, cx, lengths = random_call(c.spec, 1)
    with torch.no_grad():
        y, (h0, c0) = rnns[0](torch.tensor(x), (torch.tensor(hx[:1]), torch.tensor(cx[:1])))
        y, (h1, c1) = rnns[1](y, (torch.tensor(hx[1:]), torch.tensor(cx[1:])))
    theirs = y.numpy(), torch.cat([h0, h1]).numpy(), torch.cat([c0, c1]).numpy()
    assert worst(run_ours(c, x, hx, cx, np.full_like(lengths, len(x))), theirs) < 1e-12
    below = {f"net.{key}": value for key, value in rnns.state_dict().items()}
    for more in (below, below | rnns.state_dict()):  # a name is a part of scopes if none begins with it
        equal_models(convert.pytorch.to_canonical(more, layers=["0", "1"]), c)
    both = torch.nn.ModuleList([torch.nn.LSTM(3, 4, bidirectional=True), torch.nn.LSTM(8, 4, bidirectional=True)])
    assert convert.pytorch.to_canonical(both.state_dict(), layers=["0", "1"]).spec.num_dirs == 2


def test_a_layer_that_r_numbers_from_1_can_be_listed():
    lstm = torch.nn.LSTM(3, 4, 2, bidirectional=True)
    state = {key.replace("_l1", "_l2").replace("_l0", "_l1"): value for key, value in lstm.state_dict().items()}
    with pytest.raises(ConvertError, match="by the numbers in the names, the forward cell of layer 0 is missing"):
        convert.pytorch.to_canonical(state)
    c = convert.pytorch.to_canonical(state, layers=[("l1", "l1_reverse"), ("l2", "l2_reverse")])
    equal_models(c, convert.pytorch.to_canonical(lstm.state_dict()))


def test_a_dict_in_a_dict_is_entered_and_names_begin_below_it():
    model = torch.nn.ModuleDict({"enc": torch.nn.GRU(3, 4)})
    state = model.state_dict()
    expected = convert.pytorch.to_canonical(state, prefix="enc")
    optimizer = torch.optim.Adam(model.parameters()).state_dict()
    saved = {"epoch": 3, "state_dict": state, "optimizer": optimizer, "hyper_parameters": {"lr": 0.1}}
    equal_models(convert.pytorch.to_canonical(saved, prefix="enc"), expected)
    equal_models(convert.pytorch.to_canonical({"a": {"b": state}}, layers=["enc"]), expected)
    with pytest.raises(ConvertError, match=r"choose one: prefix='state_dict/enc.', prefix='ema/enc.'; ") as caught:
        convert.pytorch.to_canonical(saved | {"ema": state}, prefix="enc")
    equal_models(convert.pytorch.to_canonical(saved | {"ema": state}, **caught.value.choices[1]), expected)


def paddle(lstm):
    """The names of paddle.nn.LSTM's state dict, torch's and each cell's. Source: python/paddle/nn/layer/rnn.py, 2.6."""
    state = {key: value.numpy() for key, value in lstm.state_dict().items()}
    cells = {}
    for key, value in state.items():
        kind, _, place = key.rpartition("_l")
        cells[f"{place[0]}.cell_{'bw' if 'reverse' in place else 'fw'}.{kind}"] = value
    return state | cells


def test_paddles_second_names_are_left_out_with_a_warning():
    lstm = torch.nn.LSTM(3, 4, 2, bidirectional=True)
    with pytest.warns(UserWarning, match="left out, since they are of other cells: '0.cell_bw.bias_hh', "):
        c = convert.pytorch.to_canonical(paddle(lstm))
    equal_models(c, convert.pytorch.to_canonical(lstm.state_dict()))


def test_weights_that_the_module_computes_are_refused_with_the_line_that_makes_them_plain():
    def lstm():
        torch.manual_seed(0)
        return torch.nn.LSTM(3, 4)

    expected, plain = convert.pytorch.to_canonical(lstm().state_dict()), lstm().state_dict()
    raw = {f"0.{k}_raw" if k == "weight_hh_l0" else f"0.module.{k}": value for k, value in plain.items()}
    dropped = {"0.module.weight_hh_l0": torch.zeros_like(plain["weight_hh_l0"])}
    for state in (raw, raw | dropped):
        with pytest.raises(ConvertError, match="weight_hh_l0_raw': is the weight before dropout: name it without _raw"):
            convert.pytorch.to_canonical(state, prefix="0.module")
        named = state | {"0.module.weight_hh_l0": state["0.weight_hh_l0_raw"]}
        del named["0.weight_hh_l0_raw"]
        equal_models(convert.pytorch.to_canonical(named, prefix="0.module"), expected)

    weight_norm = torch.nn.utils.parametrizations.weight_norm(lstm(), "weight_hh_l0")
    with pytest.warns(FutureWarning):
        old = torch.nn.utils.weight_norm(lstm(), "weight_hh_l0")
    for module, key in ((weight_norm, "parametrizations.weight_hh_l0.original0"), (old, "weight_hh_l0_g")):
        with pytest.raises(ConvertError, match=rf"'{key}': is of .*: call .* before state_dict\(\)") as caught:
            convert.pytorch.to_canonical(module.state_dict())
        call = str(caught.value).partition("call ")[2].removesuffix(" before state_dict()")
        eval(call, globals() | {"module": module, "name": "weight_hh_l0"})
        c = convert.pytorch.to_canonical(module.state_dict())
        assert np.allclose(c.weights[4], expected.weights[4], atol=1e-6)


LSTM = {"a.weight_ih": np.ones((16, 3)), "a.weight_hh": np.ones((16, 4))}
B = {key.replace("a.", "b."): value for key, value in LSTM.items()}
MODULE = {"m.weight_ih_l0": np.ones((16, 3)), "m.weight_hh_l0": np.ones((16, 4))}
BACK = {key + "_reverse": value for key, value in MODULE.items()}


@pytest.mark.parametrize(
    ("arrays", "keywords", "text"),
    [
        (LSTM | B, {}, "the RNN is a part of this model; choose one: prefix='a.', prefix='b.'; -s prefix=a. on "),
        (LSTM | B, {"layers": ["a", "c"]}, "'c': no recurrent cell is under this name; the names here are 'a', 'b'"),
        (LSTM | B, {"layers": ["a", "a"]}, "a cell is listed twice"),
        (LSTM | B, {"layers": ["a", ("a", "b")]}, "layers of one and of two directions do not make one stack"),
        (LSTM | MODULE | BACK, {"layers": [("a", "m")]}, "a pair takes two single cells"),
        (LSTM, {"layers": ["a"], "prefix": "a"}, "leave out one of the two"),
        (LSTM, {"layers": "a"}, "expecting a list of names, or of pairs (forward, backward) of names, got 'a'"),
        (LSTM, {"layers": [("a",)]}, "expecting a list of names, or of pairs"),
        (LSTM, {"layers": [3]}, "expecting a list of names, or of pairs"),
        (BACK, {"layers": ["m"]}, "is one direction of a layer by its name"),
        (BACK, {"prefix": "m"}, "is one direction of a layer by its name"),
        (MODULE | {"m.weight_ih_l1_reverse": np.ones(3)}, {"prefix": "m"}, "the backward cell of layer 0 is missing"),
        ({"lstm.w": np.ones(3), "fc.weight": np.ones(3)}, {}, "among 2 arrays; the nearest names are 'lstm.w'"),
        ({"0._all_weight_values.0.param": object()}, {}, "holds quantized weights: save the state dict of the module"),
        ({"x": np.ones(3)}, {}, "no recurrent cell among 1 arrays; the nearest names are 'x'"),
    ],
)  # fmt: skip
def test_what_is_unclear_is_answered_with_the_choices(arrays, keywords, text):
    with pytest.raises(ConvertError) as caught:
        convert.pytorch.to_canonical(arrays, **keywords)
    assert text in str(caught.value)
