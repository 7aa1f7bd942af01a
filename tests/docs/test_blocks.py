"""Every code block of the README and the pages runs."""

import contextlib
import re
import shlex
import sys

import pytest

from benchmarks.__main__ import main as benchmarks
from tests.docs.blocks import PAGES, ROOT, blocks, commands
from tests.helpers.oracles import need

ORACLES = ("keras", "onnxruntime", "mpi4py", "IPython")
"""What pages import that only the dependency group `oracles` has."""


def name_of(page):
    return str(page.relative_to(ROOT))


def with_blocks(language):
    pages = [page for page in PAGES if any(block.language == language for block in blocks(page))]
    return pytest.mark.parametrize("page", pages, ids=name_of)


def files_to_read(page, folder):
    """Write what a page reads: torch models of which a part is an LSTM, and what savers of two and of one wrote."""
    import numpy as np
    import torch
    from safetensors.torch import save_file

    from pycudnnrnn import CudnnGRU, CudnnLSTM, Saver

    encoder, decoder, layer = CudnnGRU(1, 4), CudnnGRU(1, 4), CudnnLSTM(2, 8)
    for each in (encoder, decoder, layer):
        each.build((None, None, 4))
    if page.name == "README.md":
        save_file(torch.nn.ModuleDict({"encoder": torch.nn.LSTM(3, 4)}).state_dict(), folder / "model.safetensors")
    if page.name == "convert.md":
        model = torch.nn.ModuleDict({"encoder": torch.nn.ModuleDict({"lstm": torch.nn.LSTM(3, 4, 2)})})
        torch.save(model.state_dict(), folder / "model.pt")
        Saver({"encoder": encoder, "decoder": decoder}).save(folder / "saved.safetensors")
    if page.name == "tf-checkpoints.md":
        saver = Saver({"cudnn_lstm": layer, "global_step": np.array(1000)})
        saver.save(folder / "model.ckpt", 1000, format="tensorflow")


@pytest.fixture
def on_shim(shim_path):
    """Give a context in which CuPy's arrays and functions are over host memory: one device for all blocks of a page.

    `libcudnn.load` returns the stand-in's library there.
    """
    from pycudnnrnn import libcudnn
    from pycudnnrnn.engines import use_engine
    from tests.stand_in.host_cupy import use_host_cupy
    from tests.stand_in.host_device import host_allocator
    from tests.stand_in.shim import Shim

    shim = Shim(shim_path)
    engine, device = shim.engine_and_device()
    cupy = use_host_cupy(device)

    @contextlib.contextmanager
    def block():
        with host_allocator(device), use_engine(engine), pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "cupy", cupy)
            patch.setattr(libcudnn, "load", lambda: shim.library)
            yield

    return block


@pytest.mark.filterwarnings("ignore:.*torch.autograd.function.Function.* should not be instantiated")  # torch's own
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")  # Keras's own
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")
@with_blocks("python")
def test_the_python_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch, on_shim):
    need(*(name for name in ORACLES if re.search(rf"^(?:import|from) {name}\b", page.read_text(), re.MULTILINE)))
    monkeypatch.chdir(tmp_path)
    files_to_read(page, tmp_path)
    names = {"__name__": "page"}
    for block in blocks(page):
        if block.language != "python":
            continue
        assert block.how in {"run", "shim"}, block.how
        with on_shim() if block.how == "shim" else contextlib.nullcontext():
            exec(block.compile(), names)


@pytest.mark.parametrize("block", list(blocks(ROOT / "README.md")), ids=lambda block: f"line {block.line}")
def test_each_block_of_the_readme_runs_by_itself_and_prints_what_is_beside_it(block, tmp_path, monkeypatch, capsys):
    """A reader copies the one that they need."""
    if block.language == "python":
        monkeypatch.chdir(tmp_path)
        files_to_read(block.page, tmp_path)
        exec(block.compile(), {"__name__": "page"})
        shown = re.findall(r"^print\(.*\)  # (.*)$", block.code, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == shown


@with_blocks("console")
def test_the_commands_of_a_page_run_in_order(page, run, tmp_path):
    files_to_read(page, tmp_path)
    targets = (ROOT / "Makefile").read_text()
    for block in blocks(page):
        for command in commands(block) if block.language == "console" else ():
            match shlex.split(command):
                case ["pycudnnrnn", *arguments]:
                    code, out, err = run(*arguments)
                    assert code == 0, f"{command}\n{out}{err}"
                case ["python", "-m", "benchmarks", *arguments]:
                    benchmarks.make_context("benchmarks", arguments)  # it takes these; other tests run it
                case ["make", *names]:
                    assert all(f"\n{n}:" in targets for n in names if "=" not in n), command
                case ["pip", *_]:
                    pass  # `make dist` looks at its extras
                case other:
                    pytest.fail(f"nothing says how to run {other[0]!r}")


def test_every_block_is_of_a_kind_that_is_checked():
    for page in PAGES:
        fences = re.findall(r"^ *(?:```|~~~)(.*)$", page.read_text(), re.MULTILINE)
        kinds = [kind for kind in fences[::2] if not kind.startswith("{")]  # {toctree} and the like have no code
        assert kinds == [block.language for block in blocks(page)], name_of(page)
        assert set(kinds) <= {"python", "console", "text"}, name_of(page)
        assert not any(fences[1::2]), name_of(page)
