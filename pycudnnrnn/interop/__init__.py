"""Autograd and modules over the ops, one file a framework."""
