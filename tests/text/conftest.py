"""The text room needs the engine extra's libraries."""

from __future__ import annotations

import os

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
pytest.importorskip("transformers", reason="the engine extra is not installed")
