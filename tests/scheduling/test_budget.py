import pytest

from tidegate.scheduling.budget import StepBudget, chunk_end, fit_chunk


@pytest.mark.parametrize(
    ("start", "target", "tokens", "end"),
    [
        (0, 100, 100, 100),  # the prompt's end need not be aligned
        (0, 100, 60, 56),
        (48, 100, 32, 80),
        (50, 100, 32, 80),  # an unaligned start is aligned by its first chunk
        (0, 100, 7, 0),  # not a whole block: no chunk
        (50, 100, 5, 50),
        (96, 100, 4, 100),
        (0, 100, 0, 0),
    ],
)
def test_chunk_ends_at_the_prompt_or_at_a_block(start: int, target: int, tokens: int, end: int) -> None:
    assert chunk_end(start, target, tokens, 8) == end


def test_chunk_that_fits_is_not_cut() -> None:
    assert fit_chunk(0, 24, 8, price=lambda end: True, can_wait=lambda end: True) == 24


def test_chunk_that_may_fit_later_waits_uncut() -> None:
    asked: list[int] = []

    def price(end: int) -> bool:
        asked.append(end)
        return False

    assert fit_chunk(0, 24, 8, price=price, can_wait=lambda end: True) is None
    assert asked == [24]


def test_chunk_that_can_never_fit_is_cut_to_one_that_can() -> None:
    end = fit_chunk(0, 40, 8, price=lambda end: end <= 16, can_wait=lambda end: end <= 16)

    assert end == 16


def test_cut_stops_at_the_longest_that_could_fit_alone() -> None:
    assert fit_chunk(0, 40, 8, price=lambda end: end <= 8, can_wait=lambda end: end <= 16) is None


def test_every_cut_is_priced_because_need_is_not_monotone() -> None:
    asked: list[int] = []

    def price(end: int) -> bool:
        asked.append(end)
        return end == 8

    assert fit_chunk(4, 30, 8, price=price, can_wait=lambda end: False) == 8
    assert asked == [30, 24, 16, 8]


def test_budget_counts_partial_prefills_apart() -> None:
    budget = StepBudget(tokens=64, seats=2, partials=1)

    budget.spend(32, is_partial=True)
    budget.spend(10, is_partial=False)

    assert (budget.tokens, budget.partials) == (22, 0)
