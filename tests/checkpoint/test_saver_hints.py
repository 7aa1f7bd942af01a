"""What a saver refuses, it answers with what to give instead."""

import numpy as np
import pytest
import torch

from pycudnnrnn import CudnnGRU, Saver, ops, saveable
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from tests.helpers.layers import built


def test_what_a_saver_does_not_take_is_answered_with_what_to_give(tmp_path):
    op, layer = ops.CudnnLSTM(1, 2, 2), built(CudnnGRU)
    saves_params = (
        "an op has no weights: its params are saved by checkpoint.save(path, op, params), or by "
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


def test_a_saver_shows_the_names_and_kinds_of_its_items():
    layer, gru = built(CudnnGRU), built(CudnnGRU, name="a")
    own = gru.add_weight("own", (2, 3), dtype="float16")
    things = {"m": layer, "s": gru.saveable, "own": own, "n": np.array(3), "t": torch.zeros(2, 3)}
    assert repr(Saver(things, max_to_keep=None)) == (
        "Saver({'m': CudnnGRU, 's': CudnnGRUSaveable, 'own': Variable float16[2, 3], 'n': ndarray int64[], "
        "'t': Tensor float32[2, 3]}, max_to_keep=None)"
    )
    by_own_names = "Saver({'cudnn_gru': CudnnGRU, 'a/own': Variable float16[2, 3]}, max_to_keep=None)"
    assert repr(Saver([layer, own], 0)) == by_own_names
    many = repr(Saver({f"{i:02d}" + 100 * "x": np.zeros(1) for i in range(100)}))
    assert many.endswith(", and 84 more}, max_to_keep=5)")
    assert (many.count("ndarray"), many.count("xxx..."), len(many) < 2000) == (16, 16, True)
