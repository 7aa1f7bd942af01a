"""A package, so that no other one of this name that somebody has installed is taken for it."""
