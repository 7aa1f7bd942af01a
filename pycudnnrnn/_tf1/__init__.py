"""What TF 1.x gave every layer and cell: the base-layer members, variables, initializers, and names."""
