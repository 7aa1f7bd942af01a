# Every target makes what it needs; the only prerequisites are Python 3.11+, gcc and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
GROUPS := demo test oracles lint docs
# The newest release that the binding was compared with. 0.5 GB, and without cuBLAS, which descriptors do not need.
CUDNN  := nvidia-cudnn-cu13==9.28.0.42
# The oldest that the binding accepts, and the oldest 9.x: `make test-all` asks them for layouts, which needs neither a
# GPU nor their largest parts. 0.4 GB each in build/cudnn, which other targets leave alone.
OLDER  := 8.9.7.29 9.0.0.312
# Real files with small RNNs in many formats, 11 MB in build/silero, without what the package depends on.
SILERO := silero-vad==6.2.3
# Of CUDA 13.0, whose library finds its builtins only where somebody has loaded them.
NVRTC  := nvidia-cuda-nvrtc==13.0.88

.PHONY: demo test test-all test-compiled test-long lint docs dist bench gpu-check

demo: $(VENV)/.demo
	$(BIN)/python examples/char_lm.py $(ARGS)

# On all cores, and no more than eight: each worker imports what it tests. ARGS="-k name" goes to pytest, ARGS="-n 0" runs
# in one process.
PARALLEL := -n auto --maxprocesses 8 --dist worksteal

# The CPU's kernels are NumPy's: tests start some hundred processes, and each would load numba.
test: export PYCUDNNRNN_CPU_KERNELS ?= numpy
test: $(VENV)/.test $(VENV)/.cudnn
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# With the frameworks that converters are compared with, and older versions of cuDNN; `make test` skips what needs them,
# and says so at its end.
test-all: $(VENV)/.oracles $(OLDER:%=build/cudnn/%) build/silero
	$(MAKE) test

# The CPU engine's tests once more, with the kernels that numba compiles.
test-compiled: $(VENV)/.test
	PYCUDNNRNN_CPU_KERNELS=numba $(BIN)/python -m pytest $(PARALLEL) -m 'not long' tests/numpy_engine tests/properties tests/systems $(ARGS)

# What takes long, and nothing else: soaks, ends of processes, counts of fuzzing, benchmark suites, suites in children, and
# the rows of a product that `make test` leaves out, where it has every pair of values.
test-long: export PYCUDNNRNN_CPU_KERNELS ?= numpy
test-long: $(VENV)/.test $(VENV)/.oracles $(VENV)/.cudnn
	$(BIN)/python -m pytest $(PARALLEL) -m long $(ARGS)

lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	for system in linux darwin win32; do $(BIN)/mypy --platform $$system --cache-dir .mypy_cache/$$system || exit 1; done
	$(BIN)/lint-imports

# The pages that are generated, then all of them as HTML; a warning is an error. Frameworks are not needed: docs/conf.py
# mocks them.
docs: $(VENV)/.docs
	$(BIN)/python -m docs.generate
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs build/docs
	@echo "The pages are in build/docs: open build/docs/index.html"

# sdist, and the wheel made from it, in dist/; then the wheel by itself in empty
# environments, and that the extras which pages and errors name are there.
dist: $(VENV)/.lint
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tests.wheel.check

# The whole of the group `cpu`, with one thread and with two, on a machine that does nothing else. The run of
# 2026-11-23 took 33 minutes; ARGS="--dtype float32" is less than half of it.
bench: $(VENV)/.test $(VENV)/.oracles
	$(BIN)/python -m benchmarks --group cpu --threads 1,2 --json build/bench $(ARGS)

# On a CUDA machine as it is: nothing is installed. OUT says where the results file goes.
OUT ?= tests/gpu/results
NOW := $(shell date -u +%Y-%m-%d-%H%M)
gpu-check:
	$(PYTHON) -m tests.gpu.suite --out $(OUT)/$(NOW).jsonl -- $(ARGS)

# One environment; a stamp for each dependency group, remade when pyproject.toml changes. pip knows groups since 25.1.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'

$(GROUPS:%=$(VENV)/.%): $(VENV)/.%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --group '$*' --editable .
	@touch $@

$(VENV)/.cudnn: Makefile | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps '$(CUDNN)' '$(NVRTC)'
	@touch $@

$(OLDER:%=build/cudnn/%): build/cudnn/%: | $(VENV)/bin/python
	rm -rf $@.part
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $@.part 'nvidia-cudnn-cu12==$*'
	cd $@.part/nvidia/cudnn/lib && rm -f *cnn_* *engines* *heuristic*
	mv $@.part $@

build/silero: | $(VENV)/bin/python
	rm -rf $@.part
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $@.part '$(SILERO)'
	mv $@.part $@
