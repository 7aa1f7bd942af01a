"""The base of TF 1.x's layers and cells: its members, variables, initializers and names."""
