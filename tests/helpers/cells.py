"""TF's plain cells as a whole RNN, each sequence by itself: what an op or a layer is compared with."""

from pycudnnrnn import cells
from pycudnnrnn._tf1.tensors import cell_scope

CLASSES = {
    "lstm": cells.CudnnCompatibleLSTMCell,
    "gru": cells.CudnnCompatibleGRUCell,
    "rnn_tanh": cells.CudnnCompatibleRNNTanhCell,
    "rnn_relu": cells.CudnnCompatibleRNNReluCell,
}


class Cells:
    """One cell for each layer and direction of `spec`, with the tensors of a saveable whose scope is `scope`."""

    def __init__(self, spec, tensors, scope):
        self.spec, self.cells, self.variables = spec, [], {}
        only = {"num_proj": spec.num_proj, "cell_clip": spec.cell_clip} if spec.mode == "lstm" else {}
        for p in range(spec.num_pseudo_layers):
            layer = p // spec.num_dirs
            mode = "linear_input" if layer else spec.input_mode
            cell = CLASSES[spec.mode](
                spec.num_units, dtype=spec.dtype, input_mode=mode, bias_mode=spec.bias_mode, **only
            )
            cell.build((None, spec.layer_input_size(layer)))
            for name, variable in cell.variables_by_name().items():
                full = f"{scope}/{cell_scope(spec, p)}{name}"
                self.variables[full] = variable.assign(tensors[full])
            self.cells.append(cell)

    def tensors(self):
        return {name: variable.numpy() for name, variable in self.variables.items()}

    def __call__(self, xp, x, states, lengths=None):
        """Return (output, h) or (output, h, c), as an op's forward does, of the namespace's arrays."""
        T, B = x.shape[:2]
        each = [
            self._sequence(xp, x[:length, b : b + 1], [state[:, b : b + 1] for state in states], T)
            for b, length in enumerate(lengths or [T] * B)
        ]
        return [xp.concatenate(parts, axis=1) for parts in zip(*each, strict=True)]

    def _sequence(self, xp, x, states, T):
        rows, last = list(x), []
        for layer in range(self.spec.num_layers):
            directions = []
            for direction in range(self.spec.num_dirs):
                p = layer * self.spec.num_dirs + direction
                state = tuple(a[p] for a in reversed(states)) if len(states) == 2 else states[0][p]  # a cell has (c, h)
                outputs = []
                for row in reversed(rows) if direction else rows:
                    output, state = self.cells[p](row, state)
                    outputs.append(output)
                directions.append(outputs[::-1] if direction else outputs)
                last.append(tuple(reversed(state)) if len(states) == 2 else (state,))
            rows = [xp.concatenate(pair, axis=1) for pair in zip(*directions, strict=True)]
        padding = xp.zeros((T - len(rows), 1, self.spec.output_size), dtype=x.dtype)
        output = xp.concatenate([xp.stack(rows), padding]) if rows else padding
        return [output, *(xp.stack(arrays) for arrays in zip(*last, strict=True))]
