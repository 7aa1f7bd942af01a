"""The model of `char_lm.py`: one-hot characters, `CudnnLSTM` and softmax; Adam; and n-gram models to compare with."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import checkpoint, ops
from pycudnnrnn.checkpoint import Saver
from pycudnnrnn.errors import PycudnnrnnError
from pycudnnrnn.saveable import CudnnLSTMSaveable
from pycudnnrnn.spec import RNNSpec

Array = npt.NDArray[Any]


class CharLM:
    """Predict each character from those before it.

    `params` is the LSTM's opaque buffer; `kernel` [U, V] and `bias` [V] are the softmax's. `state` is (h, c), carried
    from call to call. `device` decides where all of them live; symbols, losses and samples are the host's.
    """

    def __init__(self, op: Any, alphabet: str, params: Array, kernel: Array, bias: Array, device: str) -> None:
        self.op, self.alphabet, self.device = op, alphabet, device
        self.params = op.move_params(params, device)
        self.xp = importlib.import_module("numpy" if device == "cpu" else "cupy")  # the same functions, the same names
        self.to_host = getattr(self.xp, "asnumpy", np.asarray)
        self.kernel, self.bias = self.xp.asarray(kernel), self.xp.asarray(bias)
        self.one_hot = self.xp.eye(len(alphabet), dtype=op.dtype.numpy)

    @classmethod
    def create(cls, alphabet: str, num_units: int, seed: int, device: str) -> CharLM:
        op = ops.CudnnLSTM(1, num_units, len(alphabet), seed=seed)
        bound = (6 / (num_units + len(alphabet))) ** 0.5
        kernel = np.random.default_rng(seed).uniform(-bound, bound, (num_units, len(alphabet)))
        dtype = op.dtype.numpy
        return cls(op, alphabet, op.init_params(), kernel.astype(dtype), np.zeros(len(alphabet), dtype), device)

    @property
    def trainable(self) -> list[Array]:
        return [self.params, self.kernel, self.bias]

    def loss_and_gradients(self, symbols: Array, targets: Array, state: Any) -> tuple[float, list[Array], Any]:
        """Return the loss in nats per character, its gradients for `trainable`, and the state to carry on with.

        Shapes:
            symbols, targets: [T, B].
        """
        xp = self.xp
        fwd = self.op.forward(self.one_hot[xp.asarray(symbols)], *state, self.params)
        hidden = fwd.output.reshape(-1, fwd.output.shape[2])
        log_p = self._log_softmax(hidden)
        expected = self.one_hot[xp.asarray(targets.reshape(-1))]
        loss = -(log_p * expected).sum() / len(expected)
        d_logits = (xp.exp(log_p) - expected) / len(expected)
        d_output = (d_logits @ self.kernel.T).reshape(fwd.output.shape)
        d_params = fwd.backward(d_output).params
        gradients = [d_params, hidden.T @ d_logits, d_logits.sum(axis=0)]
        return float(loss), gradients, (fwd.output_h, fwd.output_c)

    def loss(self, symbols: Array, chunk: int = 4096) -> float:
        """Return nats per character over one long text, read in order."""
        state, total = (None, None), 0.0
        for start in range(0, len(symbols) - 1, chunk):
            piece = symbols[start : start + chunk + 1]
            log_p, state = self.log_probabilities(piece[:-1], state)
            total -= float(log_p[np.arange(len(log_p)), piece[1:]].sum(dtype=np.float64))
        return total / (len(symbols) - 1)

    def log_probabilities(self, symbols: Array, state: Any) -> tuple[Array, Any]:
        """Return log-probabilities [T, V] of what follows each of the symbols [T], on the host, and the state."""
        data = self.one_hot[self.xp.asarray(symbols)][:, None]
        output, h, c = self.op(data, *state, self.params, is_training=False)
        return self.to_host(self._log_softmax(output[:, 0])), (h, c)

    def sample(self, prompt: str, length: int, temperature: float, seed: int) -> str:
        """Continue `prompt`, one character at a time with carried state."""
        rng = np.random.default_rng(seed)
        log_p, state = self.log_probabilities(self.encode(prompt), (None, None))
        text = prompt
        for _ in range(length):
            p = np.exp(log_p[-1].astype(np.float64) / temperature)
            symbol = rng.choice(len(p), p=p / p.sum())
            text += self.alphabet[symbol]
            log_p, state = self.log_probabilities(np.array([symbol]), state)
        return text

    def encode(self, text: str) -> Array:
        """Number the characters; one that is not in the alphabet becomes its first, the replacement character."""
        return np.array([max(self.alphabet.find(character), 0) for character in text], np.int64)

    def decode(self, symbols: Array) -> str:
        return "".join(self.alphabet[symbol] for symbol in symbols)

    def save(self, path: Path) -> None:
        """Write a checkpoint, atomically: the old file or the new one, never half."""
        Saver(self._items()).save(path)

    @classmethod
    def restore(cls, path: Path, device: str = "cpu") -> CharLM:
        """Read what `save` wrote into fresh buffers on `device`, whichever it was written on."""
        op = ops.from_spec(RNNSpec.from_json(checkpoint.inspect(path).items["lstm"]["spec"]))
        dtype, size = op.dtype.numpy, op.input_size
        kernel, bias = np.zeros((op.num_units, size), dtype), np.zeros(size, dtype)
        model = cls(op, "\0" * size, op.init_params(), kernel, bias, device)
        items = model._items()
        Saver(items).restore(path)
        model.alphabet = "".join(map(chr, items["alphabet"]))
        return model

    def _items(self) -> dict[str, Any]:
        """What a checkpoint holds of this model, by name; the alphabet as code points."""
        lstm = CudnnLSTMSaveable(self.params, self.op.num_layers, self.op.num_units, self.op.input_size)
        alphabet = np.array([ord(character) for character in self.alphabet], np.uint32)
        return {"lstm": lstm, "softmax/kernel": self.kernel, "softmax/bias": self.bias, "alphabet": alphabet}

    def _log_softmax(self, hidden: Array) -> Array:
        logits = hidden @ self.kernel + self.bias
        logits -= logits.max(axis=1, keepdims=True)
        logits -= self.xp.log(self.xp.exp(logits).sum(axis=1, keepdims=True))
        result: Array = logits
        return result


class Adam:
    """Adam with bias correction, in place; gradients are first scaled down to a global norm of `clip`.

    Source: Kingma and Ba 2015.
    """

    def __init__(self, arrays: list[Array], clip: float) -> None:
        self.arrays, self.clip = arrays, clip
        self.first = [array * 0 for array in arrays]
        self.second = [array * 0 for array in arrays]
        self.updates = 0

    def update(self, gradients: list[Array], learning_rate: float) -> None:
        norm = sum(float((g * g).sum()) for g in gradients) ** 0.5
        if not np.isfinite(norm):
            raise PycudnnrnnError(f"training diverged: the gradient's norm is {norm} at update {self.updates}")
        scale = min(1.0, self.clip / norm) if norm else 1.0
        self.updates += 1
        rate = learning_rate * (1 - 0.999**self.updates) ** 0.5 / (1 - 0.9**self.updates)
        for array, gradient, m, v in zip(self.arrays, gradients, self.first, self.second, strict=True):
            g = gradient * scale
            m[:] += 0.1 * (g - m)
            v[:] += 0.001 * (g * g - v)
            array[:] -= rate * m / (v**0.5 + 1e-8)


def ngram_losses(train: Array, held_out: Array, num_symbols: int) -> dict[str, float]:
    """Return what unigram, bigram and trigram models fitted on `train` lose on `held_out`.

    Each order is interpolated with the one below by Witten and Bell's rule, which has no parameter to tune: a context
    seen n times with k different successors trusts its own counts n / (n + k). The unigrams are smoothed by the
    uniform distribution in the same way.

    Shapes:
        train, held_out: [characters], symbols from 0 to num_symbols - 1.

    Units:
        nats per character.

    Source: Witten and Bell 1991, in the interpolated form of Chen and Goodman 1998.
    """
    context = train[-2:]
    seen = np.concatenate([context, held_out])
    probability: Array = np.full(len(held_out), 1 / num_symbols)
    losses = {}
    for order, name in enumerate(("unigram", "bigram", "trigram")):
        keys = _windows(train, order + 1, num_symbols)
        counts = np.bincount(keys, minlength=num_symbols ** (order + 1)).reshape(-1, num_symbols)
        total, kinds = counts.sum(axis=1), (counts > 0).sum(axis=1)
        key = _windows(seen, order + 1, num_symbols)[2 - order :]
        here, symbol = key // num_symbols, key % num_symbols
        weight = kinds[here]
        mixed = (counts[here, symbol] + weight * probability) / np.maximum(total[here] + weight, 1)
        probability = np.where(total[here] > 0, mixed, probability)
        losses[name] = float(-np.log(probability).mean())
    return losses


def _windows(symbols: Array, width: int, num_symbols: int) -> Array:
    """Number each run of `width` symbols: the last symbol is the lowest digit."""
    windows = np.lib.stride_tricks.sliding_window_view(symbols, width)
    result: Array = windows @ (num_symbols ** np.arange(width - 1, -1, -1, dtype=np.int64))
    return result
