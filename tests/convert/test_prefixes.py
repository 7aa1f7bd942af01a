"""One rule for the prefixes of all converters: what is written with one is read with it."""

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import equal_models, random_canonical

WHOLE = {"pytorch": "net.rnn.", "gluon": "net0_rnn0_", "chainer": "net/rnn/", "tensorflow": "net/rnn/"}
"""A prefix with the joint at its end."""

C = random_canonical(RNNSpec("gru", 2, 4, 3, direction="bidirectional"), 1)


def reading(framework):
    return {"bidirectional": True} if framework == "chainer" else {}


@pytest.mark.parametrize("framework", WHOLE)
def test_a_prefix_means_the_same_with_its_joint_and_without_where_it_is_read_and_where_it_is_written(framework):
    module, whole = getattr(convert, framework), WHOLE[framework]
    bare, written = module.from_canonical(C), module.from_canonical(C, prefix=whole)
    assert list(written) == [whole + name for name in bare]
    assert list(module.from_canonical(C, prefix=whole[:-1])) == list(written)
    for prefix in (whole, whole[:-1]):
        equal_models(module.to_canonical(written | {"other": np.ones(2)}, prefix=prefix, **reading(framework)), C)


@pytest.mark.parametrize("framework", WHOLE)
def test_a_prefix_that_ends_in_something_else_is_taken_as_it_is(framework):
    module = getattr(convert, framework)
    written = module.from_canonical(C, prefix="rnn-")
    assert list(written) == ["rnn-" + name for name in module.from_canonical(C)]
    equal_models(module.to_canonical(written, prefix="rnn-", **reading(framework)), C)


@pytest.mark.parametrize("framework", WHOLE)
@pytest.mark.parametrize("given", ["", "elsewhere"])
def test_a_missing_prefix_and_a_wrong_one_name_those_that_are_there(framework, given):
    module, whole = getattr(convert, framework), WHOLE[framework]
    arrays = module.from_canonical(C, prefix=whole) | {"other": np.ones(2)}
    with pytest.raises(ConvertError) as caught:
        module.to_canonical(arrays, prefix=given)
    assert str(caught.value).endswith(f"; there is an RNN under the prefix {whole!r}")
    assert ("there is no key under the prefix 'elsewhere" in str(caught.value)) == bool(given)
    arrays |= module.from_canonical(C, prefix="second-")
    with pytest.raises(ConvertError, match=f"under the prefix '{whole}', 'second-'$"):
        module.to_canonical(arrays, prefix=given)


def test_no_prefix_is_named_where_none_would_do():
    arrays = {f"rnn{name}": array for name, array in convert.pytorch.from_canonical(C).items()}
    with pytest.raises(ConvertError, match=r"every other key of an RNN$"):
        convert.pytorch.to_canonical(arrays)
    with pytest.raises(ConvertError, match=r"there is no key under the prefix 'elsewhere.'$"):
        convert.pytorch.to_canonical(convert.pytorch.from_canonical(C), prefix="elsewhere")
