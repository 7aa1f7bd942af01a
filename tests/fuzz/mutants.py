"""Mutants of a checkpoint, read one after the other: the loop of `checkpoint_mutants` and `bundle_mutants`.

Prints one line of JSON: how often each reason to refuse was reached, the worst time, and the worst memory beyond what a
file of that size may cost. Exits with 1 and a traceback when anything but `CheckpointError` came out, or when a file
was accepted with other values in it.
"""

import argparse
import collections
import json
import random
import resource
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

from pycudnnrnn.errors import CheckpointError

TEXT_MAX = 2000
"""Most characters of an error: what it quotes is in the file."""


class Victim:
    """What is mutated. Made with an empty folder."""

    def put(self, rng, mutation):
        """Write a mutant."""
        raise NotImplementedError

    def read(self):
        """Read it, as a user does; `CheckpointError` is how that may fail."""
        raise NotImplementedError

    def check(self, mutation):
        """Fail where harm was done, whether it was refused or not."""
        raise NotImplementedError

    def fair_nbytes(self):
        """The memory that the mutant may take for what it is."""
        raise NotImplementedError


def main(victim_class, mutations, heavy, heavy_every):
    """Run; every so many mutants are of those that cost more than all others together."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    warnings.simplefilter("ignore")
    rng = random.Random(options.seed)
    reasons, by_mutation = collections.Counter(), collections.defaultdict(collections.Counter)
    worst, peak = (0.0, ""), (0, "")
    shared_memory = Path("/dev/shm")  # on a disk, truncating a file costs ten times what reading it does
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as made:
        victim = victim_class(Path(made))
        for number in range(options.count):
            is_heavy = number % heavy_every == heavy_every - 1
            mutation = rng.choice(heavy) if is_heavy else mutations[number % len(mutations)]
            name = mutation.__name__
            victim.put(rng, mutation)
            traced = number % 41 == 0  # 41 and the number of mutations share no factor
            if traced:
                tracemalloc.start()
            started = time.process_time()
            try:
                victim.read()
                reason, text = "accepted", ""
            except CheckpointError as error:
                reason, text = error.reason, str(error)
            worst = max(worst, (time.process_time() - started, name))
            if traced:
                peak = max(peak, (tracemalloc.get_traced_memory()[1] - victim.fair_nbytes(), name))
                tracemalloc.stop()
            assert len(text) < TEXT_MAX, (name, text[:TEXT_MAX])
            victim.check(mutation)
            reasons[reason] += 1
            by_mutation[name][reason] += 1
    print(json.dumps({
        "count": options.count, "reasons": reasons, "by_mutation": by_mutation, "worst_seconds": worst,
        "peak_bytes_beyond": peak,
    }))  # fmt: skip
