"""`pycudnnrnn layout`: the table, the JSON and the picture of any spec."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given

from pycudnnrnn.errors import version_text
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.spec import DType, RNNSpec
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples


def options_of(spec):
    """The command line of a spec."""
    options = []
    for name in ("direction", "dtype", "input_mode", "bias_mode", "num_proj", "cell_clip", "algo"):
        value = getattr(spec, name)
        if value is not None:
            text = ",".join(map(repr, value)) if isinstance(value, tuple) else str(value)
            options.append(f"--{name.replace('_', '-')}={text}")
    return [str(spec.mode), str(spec.num_layers), str(spec.num_units), str(spec.input_size), *options]


@examples(100)
@given(specs(dtypes=list(DType)))
def test_every_spec_can_be_said_and_comes_back_as_json(run, spec):
    code, out, err = run("layout", *options_of(spec), "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    spec_again = RNNSpec.from_json(json.dumps(report["spec"]))
    assert spec_again == spec.replace(dropout=0.0, seed=0, math_type=None, compute_dtype=None)
    assert json.loads(run("layout", "--spec", spec.to_json(), "--json")[1]) == report | {
        "spec": json.loads(spec.to_json())
    }
    layout = arithmetic_layout(spec)
    assert (report["size"], report["nbytes"]) == (layout.size, layout.size * spec.dtype.itemsize)
    for row, region in zip(report["regions"], layout.regions, strict=True):
        assert row["layer"] * spec.num_dirs + row["direction"] == row["pseudo_layer"]
        names = ("pseudo_layer", "layer", "lin_layer_id", "gate", "kind", "side", "offset")
        assert [row[name] for name in names] == [getattr(region, name) for name in names]
        assert tuple(row["shape"]) == region.shape


def test_the_algorithm_reaches_the_spec(run):
    spec = json.loads(run("layout", "lstm", "1", "8", "4", "--algo", "persist_static", "--json")[1])["spec"]
    assert spec["algo"] == "persist_static"


def test_the_table_has_a_row_a_region_with_its_offsets(run):
    code, out, err = run("layout", "gru", "1", "76", "300", "--direction", "bidirectional")
    assert (code, err) == (0, "")
    assert "172,368 elements, 689,472 bytes" in out
    rows = [line.split() for line in out.splitlines() if "ward " in line]
    assert len(rows) == 24
    assert rows[9] == ["0", "backward", "3", "R", "reset", "76", "x", "76", "154,128", "159,904"]
    assert [row[-2] for row in rows[:3]] == ["0", "22,800", "45,600"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["gru", "1", "8", "4", "--input-mode", "skip_input"], 2, "input_size == num_units"),
        (["gru", "1", "8"], 2, "Missing argument 'INPUT_SIZE', or --spec for all of them"),
        ([], 2, "Missing argument 'MODE'"),
        (["--spec", "{}"], 2, "Invalid text: no field 'mode', expecting a JSON object"),
        (["--spec", "lstm"], 2, "a JSON object written by RNNSpec.to_json"),
        (["gru", "--spec", RNNSpec("gru", 1, 8, 4).to_json()], 2, "--spec has the whole spec: leave out MODE"),
        (["--dtype", "float32", "--spec", RNNSpec("gru", 1, 8, 4).to_json()], 2, "leave out DTYPE"),
        (["lstm", "1", "8", "4", "--cell-clip", "big"], 2, "neither a number"),
        (["lstm", "1", "8", "4", "--output", "a.bmp"], 2, "ends in '.png', '.svg' or '.pdf'"),
        (["lstm", "1", "8", "4", "--output", "nowhere/a.png"], 1, "nowhere/a.png"),
        (["lstm", "65", "8", "4", "--output", "a.png"], 2, "from 1 to 64"),
    ],
)
def test_it_ends_with_an_exit_code_and_one_line(run, tmp_path, arguments, code, text):
    status, out, err = run("layout", *arguments)
    assert status == code
    assert text in out + err
    assert not list(tmp_path.iterdir())
    if code == 1:
        assert len(err.splitlines()) == 1


def _without_cupy(*arguments, **environment):
    code = "import sys; sys.modules['cupy'] = None; from pycudnnrnn.cli import main; main()"
    command = [sys.executable, "-c", code, "layout", "lstm", "1", "8", "4", "--queried", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


def test_without_a_gpu_libcudnn_itself_is_asked_and_the_output_tells_which_and_why(lib):
    version = version_text(lib.version)
    done = _without_cupy()
    assert (done.returncode, done.stderr) == (0, "")
    assert f"asked of cuDNN {version} without a GPU: 448 elements; equal\n  a CUDA device needs CuPy" in done.stdout
    report = json.loads(_without_cupy("--json").stdout)["queried"]
    assert (report["cudnn"], report["asked"], report["equal"]) == (version, "without a GPU", True)
    assert report["why"].startswith("a CUDA device needs CuPy")
