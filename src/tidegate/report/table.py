"""Tables as data: whoever shows one decides how."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import ConfigError

Cell = str | int | float | None
"""None: there is no such number, shown as a dash."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under named columns. Numbers stay numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ConfigError(f"table {self.title!r}: a row has {len(row)} cells for {len(self.columns)} columns")

    def texts(self) -> list[list[str]]:
        """Return every cell as text: three significant decimals, thousands separated, a dash for None."""
        return [[_text(cell) for cell in row] for row in self.rows]


def _text(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else cell
