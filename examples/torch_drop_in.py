"""Train the same model with torch's LSTM and with ours.

python examples/torch_drop_in.py

After each number of a sequence, the model predicts if the sum so far is positive.
"""

import argparse
import sys

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()

try:
    from pycudnnrnn.interop.torch import LSTM
except ImportError as error:
    sys.exit(str(error))
import torch


def train(lstm_class: type[torch.nn.Module], steps: int = 60) -> list[float]:
    """Train from seed 0 and return the losses."""
    torch.manual_seed(0)
    lstm, head = lstm_class(1, 24), torch.nn.Linear(24, 1)
    optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()], lr=0.01)
    losses = []
    for _ in range(steps):
        x = torch.randn(20, 32, 1)
        goal = (x.cumsum(0) > 0).float()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(head(lstm(x)[0]), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


for lstm_class in (torch.nn.LSTM, LSTM):
    losses = train(lstm_class)
    print(f"{lstm_class.__module__}.{lstm_class.__name__}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
