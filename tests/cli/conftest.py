"""The command line with a session that needs no model."""

import pytest

from tests.cli.alphabet_session import Opened


@pytest.fixture
def opened() -> Opened:
    return Opened()
