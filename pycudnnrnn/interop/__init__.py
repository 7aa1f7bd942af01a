"""Autograd and modules over the ops, one file per framework."""
