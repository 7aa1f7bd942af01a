"""The rules of a backward: what it needs, what it uses up, what it may write to."""

import numpy as np
import pytest

from pycudnnrnn import CudnnLSTM, ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.errors import ArgumentError, StateError
from tests.helpers import recorded
from tests.helpers.calls import call_of

LSTM = ops.CudnnLSTM(2, 3, 4, direction="bidirectional", dtype="float64")
X, H, C, P = call_of(LSTM)


@pytest.mark.parametrize("keywords", [{"is_training": False}, {"keep_reserve": False}], ids=str)
def test_a_forward_that_kept_no_reserve_has_no_backward(keywords):
    fwd = LSTM.forward(X, H, C, P, **keywords)
    with pytest.raises(StateError, match=r"kept no reserve.*keep_reserve=True"):
        fwd.backward_data(np.ones_like(fwd.output))


def test_a_backward_from_nothing_names_what_it_begins_from():
    """In torch `backward()` begins at a loss; here it would begin at zeros, and train nothing."""
    layer = CudnnLSTM(2, 3)
    calls = [LSTM.forward(X, H, C, P).backward, LSTM.forward(X, H, C, P).backward_data]
    for call, names in [
        *((call, r"Invalid d_output: .*gradient of at least one result") for call in calls),
        (layer.forward(np.ones((2, 2, 4), np.float32)).backward, r"Invalid d_outputs: "),
    ]:
        with pytest.raises(ArgumentError, match=names):
            call()
        with pytest.raises(ArgumentError, match="none of them"):
            call(None, None, None)


def test_after_a_backward_that_failed_there_is_no_gradient_of_params_from_the_one_before(monkeypatch):
    with use_engine(recorded.RecordingEngine()):
        fwd = LSTM.forward(X, H, C, P)
    dy = np.ones_like(fwd.output)
    fwd.backward_data(dy, retain=True)
    monkeypatch.setattr(recorded.Reserve, "backward_data", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        fwd.backward_data(2 * dy)
    with pytest.raises(StateError, match="backward_weights before backward_data"):
        fwd.backward_weights()


READ_AGAIN = ["params", "input_data", "input_h", "input_c", "output"]


def beside(array, size, shift):
    """Return a copy of an array, data backward, and a buffer of `size` that has one element of it, at either end."""
    memory = np.zeros(array.size + size - 1)
    own, out = (memory[: array.size], memory[-size:]) if shift > 0 else (memory[-array.size :], memory[:size])
    way = slice(None, None, -1 if array.ndim > 1 else 1)
    own[:] = array[way].reshape(-1)
    return own.reshape(array.shape)[way], out


@pytest.mark.parametrize("name", READ_AGAIN)
@pytest.mark.parametrize("checkpoint_every", [None, 2])
@pytest.mark.parametrize("shift", [-1, 1])
def test_the_params_gradient_overlaps_nothing_that_is_read_again(name, checkpoint_every, shift):
    op = ops.CudnnLSTM(2, 3, 4, dtype="float64")
    arrays = dict(zip(("input_data", "input_h", "input_c", "params"), call_of(op, T=300), strict=True))
    expected, size = op.forward(*arrays.values()).backward(np.ones((300, 2, 3))), op.params_size()
    if name != "output":
        arrays[name], out = beside(arrays[name], size, shift)
    fwd = op.forward(*arrays.values(), checkpoint_every=checkpoint_every)
    if name == "output":
        out = fwd.output.reshape(-1)[:size] if shift > 0 else fwd.output.reshape(-1)[-size:]
    with pytest.raises(ArgumentError, match=f"Invalid out: memory that overlaps {name}, expecting a buffer of its own"):
        fwd.backward(np.ones_like(fwd.output), out=out)
    found = fwd.backward(np.ones_like(fwd.output))
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-12, err_msg="something was used up, or written")
    with pytest.raises(ArgumentError, match=f"overlaps {name}"):
        fwd.backward_weights(out=out)


BAD = {
    "gradient": {"d_output": np.ones((1, 2, 3))},
    "size": {"out": np.zeros(3)},
    "dtype": {"out": P.astype("f4")},
    "strides": {"out": np.repeat(P, 2)[::2]},
    "a list": {"out": P.tolist()},
    "nothing to add to": {"accumulate": True},
    "accumulate": {"out": P.copy(), "accumulate": "no"},
    "retain": {"retain": "no"},
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_backward_is_refused_before_anything_is_used_up(case):
    layer = CudnnLSTM(2, 3, direction="bidirectional", dtype="float64")
    for fwd, name in ((LSTM.forward(X, H, C, P), "d_output"), (layer.forward(X, (H, C)), "d_outputs")):
        upstream = np.ones_like(fwd.output)
        given = {name: upstream} | {name if key == "d_output" else key: value for key, value in BAD[case].items()}
        with pytest.raises(ArgumentError):
            fwd.backward(**given)
        fwd.backward(upstream)


def test_a_cell_without_c_refuses_its_gradient():
    op = ops.CudnnGRU(1, 3, 4)
    fwd = op.forward(*call_of(op))
    with pytest.raises(ArgumentError, match="d_output_c"):
        fwd.backward_data(None, None, np.zeros((1, 2, 3), "f4"))
