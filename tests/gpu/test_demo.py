"""The demo on the device beside the CPU's."""

import sys
from pathlib import Path

import pytest


def test_the_demo_learns_on_the_device_as_on_the_cpu(cuda, answer, monkeypatch):
    """The losses of the first updates are the CPU's; after them roundings part what both learn."""
    pytest.importorskip("click")
    console = pytest.importorskip("rich.console")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    monkeypatch.setitem(sys.modules, "cupy", cuda.device.xp)  # on the stand-in, its own namespace
    from char_lm import load_text, train_model
    from char_lm_model import CharLM

    text, _, alphabet = load_text(None)
    updates, units, size = (20, 8, {"batch": 2, "steps": 4}) if cuda.on_shim else (600, 128, {})
    curves, speeds = {}, {}
    for device in ("cpu", "cuda"):
        model = CharLM.create(alphabet, units, 0, device)
        quiet = console.Console(quiet=True)
        trained = train_model(model, text, updates=updates, console=quiet, **size)
        curves[device], speeds[device] = trained.losses, trained.speed
    answer("demo", {"updates": updates, "losses": curves, "characters a second": speeds})
    assert len(curves["cpu"]) == len(curves["cuda"]) == updates // 20
    assert curves["cuda"][0] == pytest.approx(curves["cpu"][0], rel=1e-3)
    assert curves["cuda"][-1] == pytest.approx(curves["cpu"][-1], rel=0.05)
