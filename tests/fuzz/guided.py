"""Coverage-guided fuzzing: `python -m tests.fuzz.guided [targets] [libFuzzer's flags]`; needs atheris.

Each target runs in a process of its own for ten minutes, or as a flag says (`-max_total_time=60`, `-runs=500`), or
until something is wrong: an exception that is not documented, more memory than SECURITY.md allows, an input that takes
longer than HANG_S, a crash. What led to new branches stays in build/fuzz, for the next time, and so does a bad input.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import tempfile
import tracemalloc
import zlib
from pathlib import Path

NAMES = ("checkpoint", "list", "keras", "onnx", "bundle")

LARGEST = 1 << 16
"""Most bytes of an input: every structure fits, and a run stays fast."""

PEAK_MAX = 2 * LARGEST + (16 << 20)
"""Twice what is expected, and 16 MiB."""

TRACED = 64
"""One input in so many has its memory measured, which takes several times as long as reading it."""

HANG_S = 120
"""By the clock, which libFuzzer asks: ten thousand times the slowest input, so that a busy machine is no finding."""


def fuzz(name: str, scratch: Path, flags: list[str]) -> None:
    """Fuzz one target, and never return."""
    import atheris

    with atheris.instrument_imports(include=["pycudnnrnn"]):
        from tests.fuzz.targets import TARGETS

    target, folder = TARGETS[name], Path("build", "fuzz", name)
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for data in target.seeds(scratch):
        target.run(data, scratch / "data")  # what imports and compiles does so now
        (corpus / hashlib.sha256(data).hexdigest()[:40]).write_bytes(data)

    def run(data: bytes) -> None:
        if zlib.crc32(data) % TRACED:  # of the input alone, so that it can be seen again
            target.run(data, scratch / "data")
            return
        tracemalloc.start()
        target.run(data, scratch / "data")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= PEAK_MAX, f"{peak} bytes to read {len(data)}"

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        return target.changed(random.Random(seed), data, lambda part: atheris.Mutate(part, max_size))[:max_size]

    limits = [f"-max_len={LARGEST}", f"-timeout={HANG_S}", "-rss_limit_mb=2048", "-max_total_time=600"]
    mutator = {"custom_mutator": mutate} if target.change else {}
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", *flags, str(corpus)], run, **mutator)
    atheris.Fuzz()


def main() -> None:
    if sys.argv[1:2] == ["--only"]:
        fuzz(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    flags = [word for word in sys.argv[1:] if word.startswith("-")]
    failed = []
    for name in [word for word in sys.argv[1:] if word not in flags] or NAMES:
        # On a disk, writing an input costs ten times what reading it does.
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="fuzz-") as scratch:
            command = [sys.executable, "-m", "tests.fuzz.guided", "--only", name, scratch, *flags]
            failed += [name] if subprocess.run(command, check=False).returncode else []
    sys.exit(f"something is wrong: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
