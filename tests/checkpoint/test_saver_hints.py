"""What a saver refuses, it answers with what to give instead."""

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, Saver, ops, saveable
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from tests.helpers.layers import built


def test_what_a_saver_does_not_take_is_answered_with_what_to_give(tmp_path):
    op, layer = ops.CudnnLSTM(1, 2, 2), built(CudnnGRU)
    saves_params = (
        "an op has no weights: its params are saved by "
        "Saver({'rnn': saveable.CudnnOpaqueParamsSaveable.of(params, op.spec, None, 'rnn')})"
    )
    refused = {
        "items['rnn']": (lambda: Saver({"rnn": op}), saves_params),
        "items": (lambda: Saver(op), saves_params),
    }
    for argument, (call, text) in refused.items():
        with pytest.raises(ArgumentTypeError) as caught:
            call()
        assert (caught.value.argument, caught.value.got) == (argument, type(op))
        assert caught.value.expected.endswith(f"; {text}")
    for one in (layer, layer.saveable):
        with pytest.raises(ArgumentTypeError, match=r"^Invalid items: .*; one thing is saved by Saver\(\[it\]\)$"):
            Saver(one)
        assert Saver([one]).save(tmp_path / "one").exists()
    params = op.init_params(seed=1)
    saver = Saver({"rnn": saveable.CudnnOpaqueParamsSaveable.of(params, op.spec, None, "rnn")})  # as it says
    kept = params.copy()
    path = saver.save(tmp_path / "op")
    params[:] = 0
    saver.restore(path)
    assert np.array_equal(params, kept)


def test_two_things_of_one_name_are_answered_with_how_to_name_them(tmp_path):
    first, second = built(CudnnGRU), built(CudnnGRU)
    with pytest.raises(ArgumentError) as caught:
        Saver([first, second])
    assert "make one with name='cudnn_gru_1', as TF would, or give a mapping" in str(caught.value)
    with pytest.raises(ArgumentError, match="make one with scope='cudnn_gru_1', as TF would"):
        Saver([first.saveable, second.saveable])
    named = CudnnGRU(1, 2, name="cudnn_gru_1")
    named.build((None, None, 2))
    for things in ([first, named], {"a": first, "b": second}):
        assert Saver(things).save(tmp_path / "both").exists()
