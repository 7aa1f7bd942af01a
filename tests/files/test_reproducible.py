"""The same state saved twice is the same file, byte for byte: at any time, in any process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.oracles import need

need("torch", "onnx", "h5py", "matplotlib")

ROOT = Path(__file__).parents[2]

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t later(void) { return atol(getenv("LATER_S")); }

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*own)(clockid_t, struct timespec *);
    if (!own) own = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int status = own(clock, at);
    if (clock == CLOCK_REALTIME) at->tv_sec += later();
    return status;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""
"""The system's clock, so many seconds later, for every library of a process."""

WRITE = """
import sys, time
from pathlib import Path
import numpy as np
from pycudnnrnn import CudnnLSTM, Saver, checkpoint, convert, plot
from pycudnnrnn.cli._files import FILE_FORMATS, write

folder = Path(sys.argv[1])
layer = CudnnLSTM(2, 4, seed=1, bias_mode="single_input", direction="bidirectional")
layer.build((None, None, 3))
layer.call(np.ones((2, 1, 3), "f4"))
saver = Saver({"layer": layer, "step": np.ones(3), "a": np.zeros(2)})
saver.save(folder / "saved", 7)
saver.save(folder / "saved.ckpt", 7, format="tensorflow")
checkpoint.save(folder / "one", layer)
c = convert.Canonical(layer.spec, *layer.op.params_to_canonical(layer.params))
for suffix, form in FILE_FORMATS.items():
    if form.image is not None:
        framework = form.framework or "flax"
        write(folder / f"c{suffix}", suffix, framework, getattr(convert, framework).from_canonical(c), c)
for suffix in plot.SUFFIXES:
    plot.draw_layout(layer.op.layout(), folder / f"picture{suffix}")
print(int(time.time()))
"""


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """A library that moves the clock."""
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(CLOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "clock.so", folder / "clock.c", "-ldl"], check=True)
    return folder / "clock.so"


def written(folder, clock, later_s, seed):
    folder.mkdir()
    environment = os.environ | {"LD_PRELOAD": str(clock), "LATER_S": str(later_s), "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WRITE, folder],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout), {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.long
def test_the_same_state_saved_at_another_time_in_another_process_is_the_same_bytes(tmp_path, clock):
    then, first = written(tmp_path / "a", clock, 0, 1)
    assert {
        "saved-7",
        "saved.ckpt-7.index",
        "checkpoint",
        "one",
        "c.pt",
        "c.h5",
        "c.onnx",
        "picture.pdf",
    } <= first.keys()
    for k in range(1, 4):  # what is in the order of a random hash may be the same once
        now, second = written(tmp_path / f"b{k}", clock, 40_000_000 * k, 1 + k)
        assert now - then >= 40_000_000 * k, "the clock was moved"
        assert [name for name in first if first[name] != second[name]] == []
        assert first.keys() == second.keys()
