"""Where CUDA has failed for good, the call that meets the error says so, and everything ends quietly."""

import gc
import importlib.util
import re
from pathlib import Path

import cupy
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.cudnn.owned import STICKY
from pycudnnrnn.errors import CaptureError, CudnnError, DeviceLostError, EngineError
from tests.helpers.every_call import CALLS, Model
from tests.helpers.oracles import missing

ILLEGAL_ADDRESS, LAUNCH_FAILURE, OUT_OF_MEMORY, EXECUTION_FAILED, NOT_SUPPORTED = 700, 719, 2, 5000, 3000


@pytest.fixture(autouse=True)
def _nothing_stays_lost(monkeypatch):
    monkeypatch.setattr(owned._Leaving, "begun", owned._Leaving.begun)
    yield
    gc.collect()  # before something is destroyed again: what is lost would be


@pytest.fixture
def model(device):
    """What every call can be made on."""
    return Model(device)


def test_every_error_after_which_cuda_asks_for_a_new_process_is_one():
    """TensorFlow's wheel has CUDA's header."""
    package = importlib.util.find_spec("tensorflow")  # without importing it
    if package is None:
        missing("tensorflow")
    header = Path(package.origin).parent / "include/external/cuda_cudart/include/driver_types.h"
    errors = re.search(r"enum \S*\s*cudaError\s*\{.*?\n\};", header.read_text(), re.DOTALL)[0]
    entries = re.findall(r"/\*\*(.*?)\*/\s*cudaError\w+\s*=\s*(\d+)", errors, re.DOTALL)
    texts = {int(code): " ".join(text.replace("*", " ").split()) for text, code in entries}
    last = {code for code, text in texts.items() if "must be terminated and relaunched" in text}
    assert len(last) >= 10
    assert last <= STICKY


@pytest.mark.parametrize("name", CALLS)
def test_on_a_lost_device_every_call_says_so_each_time(device, model, name):
    device.broken[""] = ILLEGAL_ADDRESS
    for _ in range(2):
        with pytest.raises(DeviceLostError) as caught:
            CALLS[name](model)
    assert (caught.value.device, caught.value.code, caught.value.error) == ("cuda:0", 700, "cudaErrorIllegalAddress")


# Which call meets the error, and where: in what is asked of CUDA through CuPy, or in a status of cuDNN's.
PLACES = [
    ("an eager forward", "isCapturing"),
    ("a forward of another kind", "cudnnGetRNNTempSpaceSizes"),
    ("a forward of parts", "an allocation"),
    ("a forward that recomputes", "cudnnRNNForward"),
    ("a backward", "an allocation"),
    ("a backward", "cudnnRNNBackwardData_v8"),
    ("a backward of weights", "memset"),
    ("a prepared forward", "cudnnRNNForward"),
    ("capturing", "cudnnSetStream"),
    ("capturing", "beginCapture"),
    ("capturing", "cudnnRNNForward"),
    ("replaying", "graphLaunch"),
    ("a layout", "cudnnGetRNNWeightParams"),
    ("dropout states", "a copy to the host"),
]


@pytest.mark.parametrize(("name", "where"), PLACES, ids=str)
def test_whichever_call_meets_the_error_names_it_and_calls_nothing_more(shim, device, model, name, where):
    """The work that failed may have been anybody's: what matters is who is told first."""
    if where.startswith("cudnn"):
        shim.fail = {(where, shim.counts[where] + 1): EXECUTION_FAILED}
        device.broken["memGetInfo"] = ILLEGAL_ADDRESS
    else:
        device.broken[where] = ILLEGAL_ADDRESS
    with pytest.raises(DeviceLostError, match=r"(?s)cudaErrorIllegalAddress \(700\).*restart the process") as caught:
        CALLS[name](model)
    assert caught.value.function == (where if where.startswith("cudnn") else "_cuda")
    assert device.asked[-1] == ("memGetInfo" if where.startswith("cudnn") else where)


def test_an_error_that_a_later_call_can_get_past_takes_no_device(shim, device, model):
    for code in (NOT_SUPPORTED, EXECUTION_FAILED):
        shim.fail["cudnnRNNForward", shim.counts["cudnnRNNForward"] + 1] = code
        with pytest.raises(CudnnError):
            model.forward()
    device.broken["an allocation"] = OUT_OF_MEMORY
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        model.forward()
    device.broken = {"isCapturing": 906}  # cudaErrorStreamCaptureImplicit
    with pytest.raises(CaptureError):
        model.forward()
    device.broken = {}
    CALLS["a backward"](model)
    assert not owned._Leaving.begun


def test_a_candidate_that_takes_the_device_with_it_is_the_last_that_is_tried(shim, device):
    op = ops.CudnnGRU(1, 24, 17, algo="auto")
    shim.fail["cudnnRNNForward", 1] = EXECUTION_FAILED
    device.broken["memGetInfo"] = ILLEGAL_ADDRESS
    with pytest.raises(DeviceLostError):
        op.prepare(6, 4, device="cuda")
    assert shim.counts["cudnnRNNForward"] == 1
    assert ops.algorithm_choices() == ()


@pytest.mark.parametrize("index", [0, 1])
def test_a_cuda_device_is_watched_whether_it_is_the_current_one_or_not(cuda, index):
    device = CudaDevice(index)
    error = CudnnError("cudnnRNNForward", 5000, "CUDNN_STATUS_EXECUTION_FAILED", "EXECUTION_FAILED", 92800)
    with pytest.raises(CudnnError), device.active():
        raise error
    running = device.active()  # what a status of cuDNN's means is asked of CUDA
    running.__enter__()
    cuda.code = LAUNCH_FAILURE
    with pytest.raises(DeviceLostError, match="cudnnRNNForward reported cudaErrorLaunchFailure"):
        running.__exit__(CudnnError, error, None)
    with pytest.raises(DeviceLostError, match=f"cuda:{index}"):
        device.active()
    cuda.code = 0
    with pytest.raises(EngineError, match="device 'cuda:2' was asked for; CuPy finds 2"):
        CudaDevice(2)


@pytest.mark.parametrize("at", ["work", "end"])
def test_a_device_that_is_lost_during_a_capture_is_not_a_call_that_cannot_be_captured(cuda, at):
    def work():
        cuda.order.append("work")
        if at == "work" and len(cuda.order) == 2:
            raise cupy.cuda.runtime.CUDARuntimeError(cuda.code)

    device = CudaDevice(0)
    device.stream = cuda.stream
    cuda.code = 901  # cudaErrorStreamCaptureInvalidated
    with pytest.raises(CaptureError, match="cannot be captured"):
        device.capture(work)
    assert cuda.order[-1] == "end of capture", "or the thread stays in it"
    assert device.captured(device.stream()), "CUDA cannot say"
    cuda.order.clear()
    cuda.code = ILLEGAL_ADDRESS
    with pytest.raises(DeviceLostError):
        device.capture(work)
    assert cuda.order == ["work", "work", "end of capture"][: 2 if at == "work" else 3]
