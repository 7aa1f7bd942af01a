"""What the checkpoints of the tests hold, made anew in each process from one seed: the writer's and the tests'."""

import ml_dtypes
import numpy as np

KINDS = [
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "bool",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

SHAPES = [(), (0,), (3,), (2, 0, 4), (5, 7), (1, 2, 1, 3, 1, 2)]

ODD_NAMES = ["a", "a/b", "a//b", "/", "a b", "ü/ß", "a:0", "a.b-c_d", "a\nb", "\x01", "日本語" * 40, "z" * 1000]
"""What a file can have, though TensorFlow's own variables never do."""

PARTS = {
    "rows": ["300 3 0,100:-", "300 3 100,7:-", "300 3 107,193:-"],
    "columns\x02": ["2 5 -:0,2", "2 5 -:2,3"],
    "ü": ["9000 0,64", "9000 64,8129", "9000 8193,807"],
    "wide": ["4 6 0,2:-", "4 6 2,2:-"],
}
"""How the variables of "partitioned" and "mixed" are cut: TensorFlow's words for a shape and a place in it."""


def random_array(rng, kind, shape):
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in kind:
        info = np.iinfo(kind)
        return np.asarray(rng.integers(info.min, info.max, shape, kind, endpoint=True))
    array = rng.normal(size=shape) + (1j * rng.normal(size=shape) if "complex" in kind else 0)
    return np.asarray(array).astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)


def arrays():
    """Return what is in each checkpoint, by its name."""
    rng = np.random.default_rng(0)
    return {
        "dtypes": {f"{kind}/{i}": random_array(rng, kind, s) for kind in KINDS for i, s in enumerate(SHAPES)},
        "names": {name: rng.normal(size=i) for i, name in enumerate(ODD_NAMES)},
        "many": {f"layer_{i:05d}/kernel/Adam_1": np.array([i], "f4") for i in range(9000)},
        "large": {"x": rng.integers(0, 256, (9 << 20) + 5, np.uint8)},
        "shards": {f"v{i}/{j}": rng.normal(size=(i + 1, j + 2)).astype("f4") for i in range(3) for j in range(4)},
        "partitioned": {
            "rows": rng.normal(size=(300, 3)),
            "columns\x02": rng.normal(size=(2, 5)),
            "ü": np.arange(9000),
        },
        "mixed": {
            "e": np.zeros((0, 3), "f4"),
            "kernel": rng.normal(size=(4, 6)).astype("f4"),
            "scalar": np.array(7),
            "truth": np.array([True, False, True]),
            "wide": np.arange(24.0).reshape(4, 6),
            "narrow": rng.normal(size=5).astype(ml_dtypes.bfloat16),
        },
        "strings": {"x": np.arange(3)},
        "object-1": {"v/.ATTRIBUTES/VARIABLE_VALUE": np.arange(4.0)},
    }


def part(whole, words):
    """Return the part of an array that TensorFlow's words for a shape and a place mean."""
    if not words:
        return whole
    places = [
        slice(None) if place == "-" else slice(int(place.split(",")[0]), sum(map(int, place.split(","))))
        for place in words.split(" ")[-1].split(":")
    ]
    return whole[tuple(places)]
