"""The pages of the reference: every name once, the main class first, nothing that a user cannot call."""

import re

import pytest

from docs import api_pages
from pycudnnrnn import layers, libcudnn, ops, spec
from tests.api.public_api import modules
from tests.helpers.oracles import need

need("torch", "jax", "matplotlib")  # some public modules are for them

PAGES = {path.stem: text for path, text in api_pages.api_pages().items()}
ENTRIES = re.compile(r"^ *\.\. (?:auto\w+|py:data):: (\S+)(?:\n +:module: (\S+))?", re.MULTILINE)


def entries(page):
    """The full names that a page explains, in order, without the modules themselves."""
    names = [f"{module}.{name}" if module else name for name, module in ENTRIES.findall(PAGES[page])]
    return [name for name in names if name not in dict(modules())]


def test_every_public_name_is_explained_once():
    explained = [name for page in PAGES for name in entries(page)]
    assert len(explained) == len(set(explained))
    values = {id(getattr(module, own)): f"{name}.{own}" for name, module in modules() for own in module.__all__}
    missing = set(values.values()) - set(explained) - dict(modules()).keys()
    assert missing <= {"pycudnnrnn.libcudnn.version_text"}, "errors has it"


@pytest.mark.parametrize("name", dict(modules()))
def test_a_module_begins_with_a_list_of_its_names(name):
    part = PAGES[name.split(".")[1]].partition(f".. automodule:: {name}\n")[2].partition("```")[0]
    first = re.search(r"^\.\. (autoclass|autofunction|py:data)::", part, re.MULTILINE)
    summary = part[: first.start()] if first else part
    listed = re.findall(r"^   (?:\* - :py:data:`)?(\w+)(?: <.*)?$", summary, re.MULTILINE)
    own = [full.rpartition(".")[2] for full in entries(name.split(".")[1]) if full.rpartition(".")[0] == name]
    assert listed == own


@pytest.mark.parametrize("page", ["ops", "layers"])
def test_the_lstm_is_first_and_then_the_others_as_in_the_source(page):
    classes = [name.rpartition(".")[2] for name in entries(page) if re.search(r"\.Cudnn\w+$", name)]
    assert classes[:4] == ["CudnnLSTM", "CudnnGRU", "CudnnRNNTanh", "CudnnRNNRelu"]


def test_members_are_in_the_order_of_the_source_and_a_call_is_one():
    members = [name.rpartition(".")[2] for name in entries("ops") if name.startswith("pycudnnrnn.ops.CudnnLSTM.")]
    assert members == ["num_proj", "forward", "__call__"]


def test_what_the_layers_inherit_is_explained_once():
    names = [name for page in ("layers", "cells") for name in entries(page)]
    for member in ("add_loss", "device", "__call__"):
        found = [name for name in names if re.fullmatch(rf"pycudnnrnn\.layers\.(Cudnn|RNN)\w+\.{member}", name)]
        assert found == [f"pycudnnrnn.layers.RNNLayer.{member}"]
    assert not [name for name in names if name.startswith("pycudnnrnn.cells") and name.endswith(".add_loss")]
    gru = PAGES["layers"].partition("layers.CudnnGRU\n")[2].partition(".. autoclass")[0]
    assert ":py:obj:`device <pycudnnrnn.layers.RNNLayer.device>`" in gru
    assert "<tf1-layer>" in gru


def test_every_c_function_is_listed_with_its_prototype():
    listed = re.findall(r"^\.\. c:function:: \w+ (\w+)\(", PAGES["libcudnn"], re.MULTILINE)
    assert listed == list(libcudnn.PROTOTYPES)
    assert "cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId)\n" in PAGES["libcudnn"]
    clip = PAGES["libcudnn"].partition("cudnnRNNSetClip_v9(")[2].partition(".. c:function")[0]
    assert "Since cuDNN 9.0.0." in clip


def test_a_signature_shows_words_and_hides_what_nobody_builds():
    shown = api_pages.shown_signature
    assert shown("pycudnnrnn.ops.f", ops.from_spec, "(a: str = Direction.BIDIRECTIONAL, b: X = None)") == (
        "(a: str = 'bidirectional', b: X = None)"
    )
    assert shown("pycudnnrnn.ops.Plan", ops.Plan, "(engine, spec)") == ""
    assert shown("pycudnnrnn.spec.DType", spec.DType, "(*values)") == ""
    assert shown("pycudnnrnn.ops.CudnnLSTM", ops.CudnnLSTM, "(num_layers)") == "(num_layers)"
    assert shown("pycudnnrnn.layers.RNNLayer", layers.RNNLayer, "(num_layers)") == ""


def test_the_bases_that_are_shown_are_those_that_a_reader_can_look_up():
    import torch

    from pycudnnrnn.interop.torch import LSTM

    assert list(api_pages.shown_bases(LSTM.__bases__)) == [torch.nn.Module]
    assert list(api_pages.shown_bases(ops.CudnnGRU.__bases__)) == [ops.CudnnRNN]
    assert list(api_pages.shown_bases(ops.CudnnRNN.__bases__)) == []


def test_a_constant_has_the_value_and_the_text_of_its_definition():
    page = PAGES["spec"]
    assert (
        ".. py:data:: SEED_MAX\n   :module: pycudnnrnn.spec\n   :value: 2**64 - 1\n\n   Largest dropout seed." in page
    )
