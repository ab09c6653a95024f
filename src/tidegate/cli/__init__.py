"""Flags to configuration to run: ``tidegate generate``, ``bench``, ``sim`` and ``replay``."""

from tidegate.cli.app import main

__all__ = ["main"]
