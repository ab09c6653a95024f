"""Shared set-up: Hypothesis has no deadline on a shared machine, and prints what reproduces a failure."""

from hypothesis import settings

settings.register_profile("tidegate", deadline=None, print_blob=True)
settings.load_profile("tidegate")
