"""The native half: what talks to libcudnn."""
