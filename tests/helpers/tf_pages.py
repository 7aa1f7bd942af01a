"""Five pages of TF 1.x's API reference: the members that each documents, those that a test holds, and small sizes."""

import inspect

import numpy as np
import pytest

RNG = np.random.default_rng(0)
T, B, I, U = 4, 3, 5, 2


def normal(*shape):
    return RNG.normal(size=shape)


class Page:
    """One page; `holds` marks the test of some of its members."""

    def __init__(self, members):
        self.members, self.held = set(members.split()), set()

    def holds(self, *members):
        """Decorate the test of these members; one that takes `member` runs once for each."""
        own = set(members)
        assert len(own) == len(members)
        assert own <= self.members - self.held, own - (self.members - self.held)
        self.held |= own

        def decorate(test):
            each = "member" in inspect.signature(test).parameters
            return pytest.mark.parametrize("member", members)(test) if each else test

        return decorate


def both_hold(*members):
    """Decorate the test of members that the layer's page and the cell's share."""

    def decorate(test):
        LAYER.holds(*members)
        return CELL.holds(*members)(test)

    return decorate


RELU_OP = Page("__init__ __call__ canonical_to_params params_size params_to_canonical")
"""CudnnRNNRelu, r1.2."""

RELU_SAVEABLE = Page("__init__ restore")
"""CudnnRNNReluSaveable, r1.2."""

LSTM_OP = Page("""
direction input_mode input_size num_layers num_units rnn_mode
__init__ __call__ canonical_to_params params_size params_to_canonical
""")
"""CudnnLSTM, r1.4: the op."""

LAYER = Page("""
activity_regularizer canonical_bias_shapes canonical_weight_shapes direction dtype graph
inbound_nodes input input_mask input_mode input_shape input_size losses name non_trainable_variables
non_trainable_weights num_dirs num_layers num_units outbound_nodes output output_mask output_shape
rnn_mode saveable scope_name trainable_variables trainable_weights updates variables weights
__init__ __call__ __deepcopy__ add_loss add_update add_variable add_weight apply build call
compute_mask compute_output_shape count_params from_config get_config get_input_at get_input_mask_at
get_input_shape_at get_losses_for get_output_at get_output_mask_at get_output_shape_at
get_updates_for get_weights set_weights state_shape
""")
"""CudnnLSTM, r1.9: the layer."""

CELL = Page("""
activity_regularizer dtype graph input input_shape losses name non_trainable_variables
non_trainable_weights output output_shape output_size scope_name state_size trainable_variables
trainable_weights updates variables weights
__init__ __call__ __deepcopy__ add_loss add_update add_variable apply build call count_params
get_input_at get_input_shape_at get_losses_for get_output_at get_output_shape_at get_updates_for
zero_state
""")
"""CudnnCompatibleGRUCell, r1.4."""
