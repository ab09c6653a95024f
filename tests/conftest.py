"""Shared set-up: Hypothesis has no deadline on a shared machine, and prints what reproduces a failure."""

import pytest
from hypothesis import settings

settings.register_profile("tidegate", deadline=None, print_blob=True)
settings.load_profile("tidegate")

NEAR_TIE = "near tie"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run comparisons with real models at their full size")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List each place where outputs may differ, as tests recorded them."""
    reports = [report for of_outcome in terminalreporter.stats.values() for report in of_outcome]
    lines = [
        f"{report.nodeid.rpartition('::')[2]}: {value}"
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == NEAR_TIE
    ]
    if lines:
        terminalreporter.section("places where the two likeliest tokens are nearly equal")
        terminalreporter.write_line("\n".join(lines))
