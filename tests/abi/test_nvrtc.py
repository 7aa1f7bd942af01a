"""NVRTC from its wheel compiles once we have loaded it. cuDNN's dynamic algorithm needs that; it takes no GPU."""

import subprocess
import sys

import pytest

COMPILE = """
import ctypes, importlib.metadata, sys
if sys.argv[1] == "loaded":
    from pycudnnrnn.engines.cudnn.native import load_nvrtc
    load_nvrtc()
wheel = importlib.metadata.distribution("nvidia-cuda-nvrtc")
path = next(wheel.locate_file(file) for file in wheel.files if file.name == "libnvrtc.so.13")
nvrtc, program = ctypes.CDLL(str(path)), ctypes.c_void_p()
source = b'extern "C" __global__ void write(int *a) { *a = 1; }'
assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"write.cu", 0, None, None) == 0
print(nvrtc.nvrtcCompileProgram(program, 0, None))
"""

FAILED_TO_OPEN_BUILTINS = "7"


@pytest.mark.parametrize(("how", "status"), [("loaded", "0"), ("alone", FAILED_TO_OPEN_BUILTINS)])
def test_nvrtc_compiles_once_it_is_loaded_with_its_builtins(how, status):
    done = subprocess.run([sys.executable, "-c", COMPILE, how], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (status, "")
