import pytest

from tidegate.base import ConfigError
from tidegate.report import Table


def test_cells_become_text() -> None:
    table = Table("t", ("a", "b", "c", "d", "e"), (("x", 12345, 0.123456, 12345.6, None),))

    assert table.texts() == [["x", "12,345", "0.1235", "12,346", "–"]]


def test_rows_must_fit_the_columns() -> None:
    with pytest.raises(ConfigError, match="2 cells for 1 columns"):
        Table("t", ("a",), ((1, 2),))
