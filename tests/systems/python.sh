#!/usr/bin/env bash
# The quick tests on another Python: `tests/systems/python.sh python3.13`. Also python3.14t, without the GIL, for which
# safetensors has no wheel, and numba may have none.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=$(basename "$1") python=build/$(basename "$1")/bin/python
"$1" -m venv --clear "build/$name"; shift
install=("$python" -m pip install --quiet --disable-pip-version-check)
"${install[@]}" 'numpy>=2.4' 'cupy-cuda13x==14.2.0' 'ml_dtypes>=0.6' 'click>=8.1' 'rich>=13' 'filelock>=3.12' \
  'google-crc32c>=1.5' 'pytest>=8' 'pytest-timeout>=2.3' 'hypothesis>=6.100'
"${install[@]}" --only-binary=:all: 'safetensors>=0.4.3' || true
"${install[@]}" --only-binary=:all: 'numba>=0.61' || true
"${install[@]}" --no-deps "$(sed -n 's/^CUDNN *:= *//p' Makefile)"
COMMIT=$(git rev-parse --short HEAD) PYCUDNNRNN_CPU_KERNELS=numpy exec "$python" -m tests.systems.elsewhere "$name" "$@"
