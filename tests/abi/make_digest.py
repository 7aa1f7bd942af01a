"""Read cuDNN's headers: prototypes and enumeration constants, as a dict and as the JSON files in `headers/`.

python tests/abi/make_digest.py <include folder> > tests/abi/headers/<version>.json

The older releases' digests are kept, so that their wheels of 0.6 GB are not needed again. gcc confirms every constant
before a digest is written.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEADERS = {
    8: ("cudnn_ops_infer.h", "cudnn_ops_train.h", "cudnn_adv_infer.h", "cudnn_adv_train.h"),
    9: ("cudnn_graph.h", "cudnn_ops.h", "cudnn_adv.h"),
}

STUBS = {
    "cuda_runtime.h": "#include <cuda_runtime_api.h>\n",
    "cuda_runtime_api.h": "typedef struct CUstream_st *cudaStream_t;\ntypedef struct CUgraph_st *cudaGraph_t;\n",
    "driver_types.h": "",
    "library_types.h": "typedef enum { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;\n",
}
"""What the headers include from the CUDA toolkit, which is not needed otherwise."""

ENUMS = re.compile(
    r"cudnn(Status|DataType|MathType|NanPropagation|TensorFormat|RNN\w*|ForwardMode|DirectionMode|WgradMode)_t"
)
FUNCTIONS = re.compile(
    r"cudnn(\w*RNN\w*|(Get|Set|Restore|Create|Destroy)Dropout\w+|DropoutGetStatesSize|(Create|Destroy|SetStream|GetStream)"
    r"|Get(Version|MaxDeviceVersion|CudartVersion|ErrorString|LastErrorString)"
    r"|(Create|Destroy|SetNd|GetNd)?(Set|Get)?(Tensor|Filter)(Nd)?Descriptor|(Graph|Ops|Adv)(Infer|Train)?VersionCheck)"
)


def digest(include: Path) -> dict[str, object]:
    """Return the version, the prototypes and the enumerations that concern the RNN."""
    version_header = (include / "cudnn_version.h").read_text()
    major, minor, patch = (
        int(re.search(rf"#define CUDNN_{part} (\d+)", version_header)[1]) for part in ("MAJOR", "MINOR", "PATCHLEVEL")
    )
    text = "".join((include / header).read_text(errors="replace") for header in HEADERS[major])
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    return {
        "version": major * (10000 if major >= 9 else 1000) + minor * 100 + patch,
        "functions": dict(_functions(text)),
        "enums": {name: dict(constants) for name, constants in _enums(text)},
        "macros": {name: int(bool(bit)) for name, bit in _padding_macros(text)},
    }


def _functions(text: str):
    for result, name, parameters in re.findall(r"([\w ]+?\**)\s*CUDNNWINAPI\s+(\w+)\s*\((.*?)\);", text, re.DOTALL):
        if FUNCTIONS.fullmatch(name):
            split = [] if parameters.strip() == "void" else parameters.split(",")
            yield name, [c_type(result.replace("CUDNN_DEPRECATED", "")), *(_parameter(p) for p in split)]


def _parameter(text: str) -> list[str]:
    name = re.search(r"(\w+)\s*(\[\])?$", text.strip())
    kind = text.strip()[: name.start()] + (" *" if name[2] else "")
    return [name[1], c_type(kind)]


def c_type(text: str) -> str:
    """Spell a C type one way: fixed widths as the plain types they are here, no `const` on a value."""
    text = re.sub(r"\bint32_t\b", "int", text)
    text = re.sub(r"\buint32_t\b|\bunsigned int\b", "unsigned", text)
    text = " ".join(text.replace("*", " * ").split()).replace("* *", "**")
    return text if text.endswith("*") else text.removeprefix("const ")


def _enums(text: str):
    for body, name in re.findall(r"typedef enum\s*\{(.*?)\}\s*(\w+)\s*(?:CUDNN_DEPRECATED)?;", text, re.DOTALL):
        if not ENUMS.fullmatch(name):
            continue
        known: dict[str, int] = {}
        for entry in filter(None, (part.strip() for part in body.split(","))):
            constant, _, value = (part.strip() for part in entry.partition("="))
            constant = constant.split()[0]
            previous = next(reversed(known.values()), -1)
            known[constant] = known[value] if value in known else int(value or str(previous + 1), 0)
        yield name, known


def _padding_macros(text: str):
    yield from re.findall(r"#define (CUDNN_RNN_PADDED_IO_\w+) (?:0|(\(1U << 0\)))\n", text)


def check_with_gcc(include: Path, constants: dict[str, int]) -> str:
    """Compile one `_Static_assert` a constant against the headers; the result is gcc's complaint, or nothing."""
    asserts = "".join(f'_Static_assert({name} == {value}, "{name}");\n' for name, value in constants.items())
    with tempfile.TemporaryDirectory() as folder:
        for name, content in STUBS.items():
            Path(folder, name).write_text(content)
        command = ["gcc", "-std=c11", "-fsyntax-only", "-I", folder, "-I", str(include), "-x", "c", "-"]
        source = "#include <stddef.h>\n#include <cudnn.h>\n" + asserts
        return subprocess.run(command, input=source, text=True, capture_output=True, check=False).stderr


def main() -> None:
    include = Path(sys.argv[1])
    data = digest(include)
    constants = {name: value for enum in data["enums"].values() for name, value in enum.items()} | data["macros"]
    complaint = check_with_gcc(include, constants)
    if complaint:
        sys.exit(complaint)
    sys.stdout.write(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
