"""The cells whose time loops numba compiles. Only `kernels_in_use` imports this folder."""
