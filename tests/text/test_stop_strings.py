"""Stop strings end a stream at the same place however it is cut, and nothing of one is ever shown."""

from __future__ import annotations

import random

import pytest

from tidegate.base import ConfigError
from tidegate.text import StopStrings


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    scanner = StopStrings(stops)
    shown = ""
    for piece in pieces:
        scan = scanner.push(piece)
        shown += scan.text
        if scan.stopped_by is not None:
            return shown, scan.stopped_by
    return shown + scanner.flush(), None


def test_a_match_across_pieces_ends_the_text_before_it() -> None:
    assert run(["END"], ["one E", "N", "D two"]) == ("one ", "END")


def test_a_false_start_is_shown_as_soon_as_it_fails() -> None:
    scanner = StopStrings(["END"])
    assert scanner.push("xEN").text == "x"
    assert scanner.push("x").text == "ENx"


def test_what_was_held_back_is_shown_at_the_end() -> None:
    assert run(["END"], ["so far EN"]) == ("so far EN", None)


def test_a_restart_inside_a_false_start_is_found() -> None:
    assert run(["aab"], list("xaaab")) == ("xa", "aab")


def test_the_match_that_ends_first_wins_and_of_those_the_longest() -> None:
    assert run(["abcd", "b"], ["abcd"]) == ("a", "b")
    assert run(["b", "ab"], ["ab"]) == ("", "ab")


def test_without_stops_text_passes_through() -> None:
    assert StopStrings([]).push("anything").text == "anything"


def test_any_cut_gives_the_same_result() -> None:
    rng = random.Random(1)
    for _ in range(500):
        stops = ["".join(rng.choices("ab", k=rng.randint(1, 4))) + "c" * rng.randint(0, 1) for _ in range(3)]
        text = "".join(rng.choices("abc", k=20))
        cuts = sorted(rng.sample(range(21), 4))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, 20], strict=True)]
        assert run(stops, pieces) == run(stops, list(text)), (stops, text, cuts)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ConfigError, match="empty"):
        StopStrings(["x", ""])
