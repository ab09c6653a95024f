"""The command line with a model that needs no weights."""

import pytest

from tests.cli.alphabet_model import Opened


@pytest.fixture
def opened() -> Opened:
    return Opened()
