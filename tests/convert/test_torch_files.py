"""State dicts as they lie in files: single cells and stacks of cells, dicts in dicts, two names for one array."""

import numpy as np
import pytest

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import equal_models, need, random_call, run_ours, worst

need("torch")
import torch  # noqa: E402

from tests.helpers.torch_oracle import run_torch_cells  # noqa: E402

KINDS = ["LSTM", "GRU", "RNN"]


def cells_of(kind, inputs, units=4):
    torch.manual_seed(inputs)
    return getattr(torch.nn, f"{kind}Cell")(inputs, units, dtype=torch.float64)


def said(kind):
    return {"nonlinearity": "tanh"} if kind == "RNN" else {}


def check(c, *cells):
    """Compare a model with torch's cells, in cuDNN's order, on random input and states."""
    call = random_call(c.spec, 3)
    assert worst(run_ours(c, *call), run_torch_cells(cells, c.spec, *call)) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_cell_is_a_model_of_one_layer(kind):
    cell = cells_of(kind, 3)
    check(convert.pytorch.to_canonical(cell.state_dict(), **said(kind)), cell)
    model = torch.nn.ModuleDict({"decoder": torch.nn.ModuleDict({"rnn": cell}), "head": torch.nn.Linear(4, 2)})
    check(convert.pytorch.to_canonical(model.state_dict(), prefix="decoder.rnn", **said(kind)), cell)


@pytest.mark.parametrize("kind", KINDS)
def test_cells_in_a_list_are_a_stack_in_the_order_of_their_numbers_and_a_warning_says_so(kind):
    cells = torch.nn.ModuleList([cells_of(kind, 3), *(cells_of(kind, 4) for _ in range(10))])
    state = torch.nn.ModuleDict({"layers": cells}).state_dict()
    with pytest.warns(UserWarning, match="in the order of their numbers: layers.0, layers.1, "):
        c = convert.pytorch.to_canonical(state, prefix="layers", **said(kind))
    check(c, *cells)
    part = convert.pytorch.to_canonical(state, prefix="layers.10", **said(kind))
    check(part, cells[10])


@pytest.mark.parametrize("kind", KINDS)
def test_the_caller_orders_cells_of_any_names_in_one_direction_and_in_both(kind):
    names = {"b": 3, "a": 4, "fw": 3, "back": 3, "up.fw": 8, "up.back": 8}
    model = torch.nn.Module()
    for name, inputs in names.items():
        model.add_module(name.replace("up.", "up_"), cells_of(kind, inputs))
    state = {key.replace("up_", "up."): value for key, value in model.state_dict().items()}
    c = convert.pytorch.to_canonical(state, layers=["b", "a"], **said(kind))
    check(c, model.b, model.a)
    c = convert.pytorch.to_canonical(state, layers=[("fw", "back"), ("up.fw", "up.back")], **said(kind))
    check(c, model.fw, model.back, model.up_fw, model.up_back)


def test_modules_of_one_layer_each_are_one_stack_if_the_caller_lists_them():
    """salesforce/awd-lstm-lm: a list of nn.LSTM. Here a module of two layers is among them, which is two layers."""
    rnns = torch.nn.ModuleList([torch.nn.LSTM(3, 4), torch.nn.LSTM(4, 4, 2)])
    c = convert.pytorch.to_canonical(rnns.state_dict(), layers=["0", "1"])
    up = {key.replace("_l1", "_l2").replace("_l0", "_l1"): value for key, value in rnns[1].state_dict().items()}
    equal_models(c, convert.pytorch.to_canonical(rnns[0].state_dict() | up))
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
