"""The engine for CUDA arrays: all calls of libcudnn."""
