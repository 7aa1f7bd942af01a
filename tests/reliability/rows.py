"""The rows: a promise, its number, the tests that measure it, and a fault that they must see."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    """A change of one file that the row's tests must not survive."""

    path: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}: `{self.old.strip()}` -> `{self.new.strip()}`"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table; `tests` are pytest arguments, `needs` is what this machine does not have.

    A row that needs a GPU is measured by its results files (`tests/gpu/results`). Here its tests run on the stand-in,
    to see that they see the fault, and count for nothing else.

    Where tests that pass are not the measure, `measure` names what is (`measures.MEASURES`), `tests` is what that gets.
    """

    name: str
    promise: str
    target: str
    tests: tuple[str, ...] = ()
    fault: Fault | None = None
    needs: str = ""
    measure: str = ""


GPU = "a GPU"

ROWS = (
    Row(
        "R1", "the binding equals the headers of cuDNN 8.9.7, 9.0 and 9.28", "every prototype and used constant",
        ("tests/abi/test_prototypes.py", "tests/abi/test_enums.py"),
        Fault(
            "pycudnnrnn/_libcudnn_abi.py", "inputSize=int32_t, hiddenSize=int32_t, projSize=int32_t",
            "inputSize=int32_t, projSize=int32_t, hiddenSize=int32_t",
        ),
    ),
    Row(
        "R2", "creating and destroying descriptors leaks no memory", "1,000,000 of each type, growth <= 1 MiB",
        ("tests/abi/test_soak.py",),
        Fault("pycudnnrnn/engines/cudnn/owned.py", "            self._destroy(self._pointer)\n", "            pass\n"),
    ),
    Row(
        "R3", "creating, running and closing models leaks no device memory",
        "10,000 cycles: the pool does not grow, the last 5,000 grow by at most 2 driver pages",
        ("-m", "gpu", "tests/gpu/test_soak.py", "-k", "ten_thousand"),
        Fault(
            "pycudnnrnn/engines/cudnn/whole.py", "        if not config.keep_reserve:\n",
            "        globals().setdefault('LEAK', []).append(y)\n        if not config.keep_reserve:\n",
        ),
        needs=GPU,
    ),
    Row(
        "R4", "mutated checkpoints raise an error",
        "200,000 files; each reason 100 times; peak <= 16 MiB over twice the layout",
        ("tests/fuzz",),
        Fault("pycudnnrnn/checkpoint/_file.py", "if _digest(_whole(tensors), metadata) != ", "if None == "),
    ),
    Row(
        "R5", "known attack files raise an error", "12 of 12", ("tests/checkpoint/test_checkpoint_attacks.py",),
        Fault("pycudnnrnn/checkpoint/_file.py", "<= min(header_max, source.size - 8)", "<= 2**62"),
    ),
    Row(
        "R6", "no planted library is loaded", "0 loads in 8 scenarios", ("tests/abi/test_hijack.py",),
        Fault("pycudnnrnn/_discovery.py", "    _check_trust((path, *parts))\n", ""),
    ),
    Row(
        "R7", "properties hold for random inputs", "2,000 examples per layout property, 300 per numeric one",
        (
            "tests/properties", "tests/spec_and_layout/test_layout.py", "tests/spec_and_layout/test_schedule.py",
            "tests/cudnn_engine/test_numbers.py",
        ),
        Fault("pycudnnrnn/layout/__init__.py", "        end += region.size\n", "        end += region.size + 1\n"),
    ),
    Row(
        "R8", "an allocation that fails changes nothing", "every allocation fails once",
        ("tests/cudnn_engine/test_failures.py", "tests/numpy_engine/test_allocations.py", "-k", "allocation"),
        Fault(
            "pycudnnrnn/engines/cudnn/whole.py", "        results = passes.new(",
            "        inputs['x'][...] = 0\n        results = passes.new(",
        ),
    ),
    Row(
        "R9", "each status of each call raises a typed error",
        "every code of 9.x, at the first and the last call of each function",
        ("tests/cudnn_engine/test_failures.py", "-k", "each_status"),
        Fault("pycudnnrnn/_libcudnn.py", "            if status:\n", "            if status > 5000:\n"),
    ),
    Row(
        "R10", "nothing is written outside an array", "guard bytes in every test of the native path",
        ("tests/cudnn_engine",),
        Fault(
            "pycudnnrnn/engines/cudnn/whole.py", "scratch(device, passes.reserve_nbytes)",
            "scratch(device, passes.reserve_nbytes - 1)",
        ),
    ),
    Row(
        "R11", "compute-sanitizer finds nothing", "0 findings in memcheck, initcheck and racecheck",
        ("tests/gpu_suite/test_gpu_files.py", "-k", "cases_run"),
        Fault(
            "pycudnnrnn/engines/cudnn/whole.py", "scratch(device, passes.reserve_nbytes)",
            "scratch(device, passes.reserve_nbytes - 1)",
        ),
        needs=GPU,
    ),
    Row(
        "R12", "each thread has its own handle, and all get equal results",
        "8 threads, 10,000 calls in CI, 80,000 nightly",
        ("tests/cudnn_engine/test_concurrency.py", "-k", "threads_have"),
        Fault("pycudnnrnn/engines/cudnn/handles.py", "threading.local()", "type('', (), {})()"),
    ),
    Row(
        "R13", "the interpreter exits without errors while objects are alive", "1,000 exits in 10 situations",
        ("tests/abi/test_exits.py", "tests/cudnn_engine/test_exits.py"),
        Fault(
            "pycudnnrnn/engines/cudnn/owned.py", "weakref.ref(owner, lambda _: self.free())",
            "weakref.finalize(owner, self.free)",
        ),
    ),
    Row(
        "R14", "a forked child gets an error, and its parent keeps working", "100 of 100 children",
        ("tests/cudnn_engine/test_concurrency.py", "-k", "forked"),
        Fault("pycudnnrnn/engines/cudnn/handles.py", "if self._count and self", "if not self._count and self"),
    ),
    Row(
        "R15", "integers beyond a limit raise an error before any call", "every integer argument",
        ("tests/cudnn_engine/test_boundaries.py",),
        Fault("pycudnnrnn/engines/cudnn/checks.py", "if T * B * width > INT32_MAX", "if T * B * width > 2**32"),
    ),
    Row(
        "R16", "every branch of the modules with decisions is tested", "100 % of 7 modules, 95 % overall",
        (
            "tests/spec_and_layout", "tests/ops", "tests/numpy_engine", "tests/tf1", "tests/checkpoint", "tests/files",
            "tests/api/test_package.py", "tests/api/test_wrong_types.py", "tests/helpers",
            "tests/abi/test_discovery.py", "tests/abi/test_hijack.py", "tests/abi/test_versions.py",
            "tests/cudnn_engine/test_concurrency.py",
        ),
        Fault(
            "pycudnnrnn/schedule.py", '    name = "sequence_lengths"\n',
            '    name = "sequence_lengths"\n    if T < 0:\n        return None\n',
        ),
        measure="coverage",
    ),
    Row(
        "R17", "tests detect mutations of layout, checks, schedule, canonical and gate orders", "90 %", (),
        Fault("pyproject.toml", '"tests/spec_and_layout/test_error_texts.py", ', ""),
        measure="mutation",
    ),
    Row(
        "R18", "after an illegal access every call fails at once", "`DeviceLostError` in 10 ms, no retry",
        ("-m", "gpu", "tests/gpu/test_lost.py"),
        Fault("pycudnnrnn/engines/cudnn/lost.py", "if code not in STICKY", "if code != 1"),
        needs=GPU,
    ),
    Row(
        "R19", "equal seeds give equal bits", "100 runs per mode",
        ("-m", "gpu", "tests/gpu/test_numbers.py", "-k", "100_runs and standard"),
        Fault("pycudnnrnn/ops/_dropout.py", " if pair[0].name != state.engine}", "}"),
        needs=GPU,
    ),
    Row(
        "R20", "a direct forward call with all checks costs little host time",
        "20 us more than the bare C call (median)",
        measure="host_cost",
        fault=Fault(
            "pycudnnrnn/engines/cudnn/whole.py", "        handle = runtime.handle_on(stream)\n",
            "        handle = runtime.handle_on(stream)\n        sum(range(5000))\n",
        ),
    ),
)  # fmt: skip
