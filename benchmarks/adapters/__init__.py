"""One file a competitor, each with `prepare(problem) -> {pass: callable}` and `outputs(problem) -> array`."""
