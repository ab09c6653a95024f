"""The overload table: one line per policy, all of them true to their names."""

from benchmarks.overload import HEADING, Row, row, table
from benchmarks.overload import head_of_line as head_of_line_run


def test_table_has_a_line_for_each_policy_under_its_heading() -> None:
    lines = table()

    assert lines[0] == HEADING
    assert len(lines) == 1 + 3 + 6
    assert len({len(line) for line in lines}) == 1


def test_row_counts_what_the_run_did() -> None:
    run = head_of_line_run(0)

    assert row("off", run) == Row("off", 31, 7, 0, 0, 31, 0)
