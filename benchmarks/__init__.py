"""Speed, measured. Benchmarks measure; tests never assert a time."""
