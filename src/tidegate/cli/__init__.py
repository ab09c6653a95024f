"""Flags to configuration to run: ``tidegate generate`` and ``tidegate bench``."""

from tidegate.cli.app import main

__all__ = ["main"]
