"""What others have published, as data."""

from __future__ import annotations

import csv
from pathlib import Path


def deepbench_v100() -> dict[tuple[str, int, int, int], dict[str, float]]:
    """Return milliseconds by (cell, H, B, T): "float32_infer", "float16_wgrad" and so on.

    Source: baidu-research/DeepBench @da81ba7, results/train/DeepBench_NV_V100.xlsx: V100, CUDA 10.1, cuDNN 7.6.2;
    skip input; "float16" has mixed arithmetic.
    """
    with (Path(__file__).parent / "deepbench_v100.csv").open(encoding="utf-8", newline="") as file:
        return {
            (line.pop("cell"), int(line.pop("H")), int(line.pop("B")), int(line.pop("T"))): {
                name.removesuffix("_ms"): float(value) for name, value in line.items()
            }
            for line in csv.DictReader(file)
        }
