"""`python -m pycudnnrnn`."""

from pycudnnrnn.cli import main

main()
