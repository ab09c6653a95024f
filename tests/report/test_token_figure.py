import io
import struct

import numpy as np
import pytest

from tidegate.base import ConfigError
from tidegate.report import TokenHistory, draw_tokens


def history(steps: int, ranks: int = 2, seed: int = 0) -> TokenHistory:
    tokens = np.random.default_rng(seed).integers(0, 100, (steps, ranks))
    return TokenHistory(tokens, np.full(steps, 0.5))


def size(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def pixels(png: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    from matplotlib.image import imread

    return imread(io.BytesIO(png))


def test_imbalance_is_what_the_busiest_compute_relative_to_the_mean() -> None:
    even = TokenHistory(np.array([[4, 4], [2, 2]]), np.ones(2))
    turns = TokenHistory(np.array([[4, 0], [0, 4]]), np.ones(2))

    assert even.imbalance == 1.0
    assert turns.imbalance == 2.0
    assert even.tokens_per_s == 6.0


def test_run_without_steps_or_tokens_has_no_figures() -> None:
    nothing = TokenHistory(np.zeros((0, 2), dtype=np.int64), np.zeros(0))

    assert nothing.imbalance is None
    assert nothing.tokens_per_s is None
    assert TokenHistory(np.zeros((3, 2), dtype=np.int64), np.ones(3)).imbalance is None


@pytest.mark.parametrize(
    ("shape", "steps"),
    [((3,), 3), ((3, 2), 2), ((3, 0), 3)],
)
def test_arrays_that_do_not_belong_together_are_refused(shape: tuple[int, ...], steps: int) -> None:
    with pytest.raises(ConfigError, match=r"must be \[steps, ranks\]"):
        TokenHistory(np.zeros(shape, dtype=np.int64), np.zeros(steps))


def test_panels_are_laid_out_in_rows() -> None:
    one = size(draw_tokens({"a": history(5)}))
    nine = size(draw_tokens({str(i): history(40, 8, i) for i in range(9)}, title="nine"))
    four = size(draw_tokens({str(i): history(5) for i in range(4)}, columns=2))

    assert nine[0] == 3 * one[0]
    assert four[0] == 2 * one[0]
    assert one[1] < four[1] < nine[1]


def test_one_busy_step_among_thousands_is_seen() -> None:
    tokens = np.zeros((20_000, 4), dtype=np.int64)
    tokens[:, 0] = 1000
    calm = draw_tokens({"a": TokenHistory(tokens, np.ones(20_000))})
    tokens[12_345, 2] = 1000

    changed = pixels(draw_tokens({"a": TokenHistory(tokens.copy(), np.ones(20_000))})) != pixels(calm)

    rows, columns = np.nonzero(changed.any(axis=2)[100:])  # below the title, whose numbers change too
    assert len(rows) > 20
    assert np.ptp(columns) <= 4


def test_panels_share_their_axes_and_colours() -> None:
    low = TokenHistory(np.full((10, 2), 50), np.ones(10))
    high = TokenHistory(np.full((20, 4), 100), np.ones(20))

    alone = pixels(draw_tokens({"low": low, "again": low}))
    beside = pixels(draw_tokens({"low": low, "high": high}))

    assert alone.shape == beside.shape
    left = (slice(None), slice(0, alone.shape[1] // 3))
    assert np.mean(alone[left] != beside[left]) > 0.2


def test_ranks_and_steps_may_be_none_or_differ() -> None:
    nothing = TokenHistory(np.zeros((0, 3), dtype=np.int64), np.zeros(0))

    assert draw_tokens({"nothing": nothing}).startswith(b"\x89PNG")
    assert draw_tokens({"nothing": nothing, "one": history(1, 64)}).startswith(b"\x89PNG")


def test_figure_without_histories_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one history"):
        draw_tokens({})
    with pytest.raises(ConfigError, match="columns=0"):
        draw_tokens({"a": history(2)}, columns=0)


def test_rank_that_decodes_beside_long_chunks_does_not_look_idle() -> None:
    from matplotlib.image import imread

    panels = []
    for decoded in (0, 16):
        run = TokenHistory(np.tile(np.array([4000, decoded]), (100, 1)), np.ones(100))
        panels.append(imread(io.BytesIO(draw_tokens({"a": run})))[100:])  # below the title, whose numbers differ

    difference = np.abs(panels[0] - panels[1]).max(axis=2)

    assert np.mean(difference > 0.05) > 0.1
