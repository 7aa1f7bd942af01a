"""Coverage-guided fuzzing, bounded: `python -m tests.fuzz.guided [targets] --seconds 600`; needs atheris.

Each target runs in a process of its own until its time or its number of runs is over, or it finds something: an
exception that is not documented, more memory than SECURITY.md allows, an input that takes longer than HANG_S, a crash.
What led to new branches stays in build/fuzz, for the next time. Exits with 1 when anything was found.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import subprocess
import sys
import tempfile
import tracemalloc
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = ("checkpoint", "list", "keras", "onnx", "bundle")

LARGEST = 1 << 16
"""Most bytes of an input: every structure fits, and a run stays fast."""

PEAK_MAX = 2 * LARGEST + (16 << 20)
"""Twice what is expected, and 16 MiB."""

TRACED = 64
"""One input in so many has its memory measured, which takes several times as long as reading it."""

HANG_S = 120
"""By the clock, which libFuzzer asks: ten thousand times the slowest input, so that a busy machine is no finding."""

RSS_MIB = 2048


def fuzz(name: str, folder: Path, scratch: Path, arguments: list[str]) -> None:
    """Fuzz one target, and never return."""
    import atheris

    with atheris.instrument_imports(include=["pycudnnrnn"]):
        from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
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

    mutator = {"custom_mutator": mutate} if target.change else {}
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], run, **mutator)
    atheris.Fuzz()


def finding(name: str, folder: Path, seconds: int, runs: int, seed: int) -> str:
    """Fuzz one target in a process, print what it did, and return what it found."""
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.glob("*-*"))
    limits = [
        f"-max_total_time={seconds}", f"-runs={runs}", f"-seed={seed}", f"-max_len={LARGEST}", f"-timeout={HANG_S}",
        f"-rss_limit_mb={RSS_MIB}", f"-artifact_prefix={folder}/", "-print_final_stats=1",
    ]  # fmt: skip
    # On a disk, writing an input costs ten times what reading it does.
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="fuzz-") as scratch:
        command = [sys.executable, "-m", "tests.fuzz.guided", "--only", name, str(folder), scratch, *limits]
        done = subprocess.run(command, capture_output=True, check=False, cwd=ROOT)
    text = (done.stdout + done.stderr).decode(errors="replace")
    (folder / "log").write_text(text)
    status = re.findall(r"^#\d+\s.*", text, re.MULTILINE)
    print(name, *status[-1:], flush=True)
    inputs = [str(path) for path in sorted(set(folder.glob("*-*")) - before)]
    said = re.findall(r"^ *(?:[a-z_]+\.)*[A-Z]\w*(?:Error|Exception|Refusal)\b.*|^==\d+== ?ERROR.*", text, re.MULTILINE)
    why = said[0].strip() if said else f"exit status {done.returncode}: {text[-500:]}"
    return f"{name}: {why}; {', '.join(inputs)}" if done.returncode or inputs else ""


def main() -> None:
    if sys.argv[1:2] == ["--only"]:
        fuzz(sys.argv[2], *map(Path, sys.argv[3:5]), sys.argv[5:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=[], choices=[*NAMES, []], metavar="target")
    parser.add_argument("--seconds", type=int, default=600, help="of each target; 0: until its runs are over")
    parser.add_argument("--runs", type=int, default=-1, help="of each target, at most; -1: as many as the time allows")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz", help="what stays for the next time")
    asked = parser.parse_args()
    bounds = asked.seconds, asked.runs, asked.seed
    found = [finding(name, (asked.folder / name).resolve(), *bounds) for name in asked.targets or NAMES]
    sys.exit("\n".join(filter(None, found)) or None)


if __name__ == "__main__":
    main()
