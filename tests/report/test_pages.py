import struct

import numpy as np
import pytest

from tidegate.base import ConfigError
from tidegate.report import PageHistory, PageRecorder, draw_pages


def test_history_starts_at_zero_and_knows_its_peaks() -> None:
    recorder = PageRecorder(["full", "window"])
    for time_s, pages in ((10.0, (1, 5)), (11.0, (7, 2)), (13.0, (3, 3))):
        recorder.record(time_s, pages)

    history = recorder.history()

    assert history.times_s.tolist() == [0.0, 1.0, 3.0]
    assert history.pages.tolist() == [[1, 5], [7, 2], [3, 3]]
    assert history.peaks == (7, 5)


def test_memory_is_bounded_and_peaks_are_kept() -> None:
    recorder = PageRecorder(["full"], limit=16)
    for i in range(1000):
        recorder.record(float(i), (99 if i == 333 else 1,))

    history = recorder.history()

    assert len(history.times_s) <= 16
    assert history.peaks == (99,)
    assert (np.diff(history.times_s) > 0).all()


def test_empty_history_has_no_peaks() -> None:
    assert PageRecorder(["full"]).history().peaks == (0,)


def test_figure_is_a_png_with_a_panel_for_each_series() -> None:
    history = PageHistory(("a", "b"), np.array([0.0, 1.0]), np.array([[1, 2], [3, 4]]))

    one = draw_pages(PageHistory(("a",), history.times_s, history.pages[:, :1]))
    two = draw_pages(history, title="two", totals=(8, 8))

    assert two.startswith(b"\x89PNG\r\n\x1a\n")
    assert height(two) == 2 * height(one)


def test_figure_of_an_empty_history_is_drawn() -> None:
    assert draw_pages(PageRecorder(["a"]).history()).startswith(b"\x89PNG")


def test_figure_without_series_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one series"):
        draw_pages(PageRecorder([]).history())


def height(png: bytes) -> int:
    return int(struct.unpack(">I", png[20:24])[0])
