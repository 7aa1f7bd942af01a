#!/usr/bin/env bash
# The quick tests on an emulated 64-bit ARM processor (qemu), with Debian's Python, wheels for aarch64 and the real libcudnn.
# For Debian and Ubuntu, as root: `tests/systems/arm.sh`. The first call fetches about 800 MB into build/arm. The kernels are NumPy's,
# or with PYCUDNNRNN_CPU_KERNELS=numba compiled ones. Left out: NVIDIA's checksums, which take hours, and a test of a child process.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD/build/arm cudnn=$(sed -n 's/^CUDNN *:= *//p' Makefile)
export COMMIT=$(git rev-parse --short HEAD)
if [ ! -e "$root/.ready" ]; then
  dpkg --add-architecture arm64
  apt-get update -qq
  apt-get install -y -qq qemu-user-static >/dev/null
  mkdir -p "$root/debs" "$root/root" "$root/site"
  (cd "$root/debs" && apt-get download -qq {python3.11-minimal,libpython3.11-minimal,libpython3.11-stdlib,libc6,zlib1g,libexpat1,libssl3,libffi8,libbz2-1.0,liblzma5,libsqlite3-0,libuuid1,libstdc++6,libgcc-s1,libgomp1,libncursesw6,libtinfo6,libreadline8}:arm64)
  for deb in "$root"/debs/*.deb; do dpkg -x "$deb" "$root/root"; done
  python3 -m pip download -q --only-binary=:all: --platform={manylinux2014,manylinux_2_17,manylinux_2_27,manylinux_2_28}_aarch64 --python-version 3.11 \
    --implementation cp --abi cp311 --abi abi3 --abi none -d "$root/wheels" \
    numpy numba safetensors click rich filelock h5py onnx ml_dtypes google-crc32c pytest pytest-timeout hypothesis
  python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_27_aarch64 -d "$root/wheels" "$cudnn"
  for wheel in "$root"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$root/site"; done
  touch "$root/.ready"
fi
export PYTHONPATH="$root/site:$PWD" PYCUDNNRNN_LIBRARY="$root/site/nvidia/cudnn/lib/libcudnn.so.9"
export PYCUDNNRNN_CPU_KERNELS=${PYCUDNNRNN_CPU_KERNELS:-numpy}
exec qemu-aarch64-static -L "$root/root" "$root/root/usr/bin/python3.11" \
  -m tests.systems.elsewhere "aarch64-$PYCUDNNRNN_CPU_KERNELS" -k "not checksums and not never_a_signal" "$@"
