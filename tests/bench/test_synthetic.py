import pytest

from tidegate.base import ConfigError
from tidegate.bench import SyntheticPrompts


def test_prompts_have_the_length_and_stay_in_the_vocabulary() -> None:
    prompts = list(SyntheticPrompts(count=3, length=50, vocab_size=7))

    assert [len(prompt) for prompt in prompts] == [50, 50, 50]
    assert all(prompt.min() >= 0 and prompt.max() < 7 for prompt in prompts)


def test_the_shared_head_is_the_same_and_the_rest_is_not() -> None:
    first, second = SyntheticPrompts(count=2, length=20, vocab_size=1000, shared=8)

    assert first[:8].tolist() == second[:8].tolist()
    assert first[8:].tolist() != second[8:].tolist()


def test_same_seed_same_prompts() -> None:
    first, again = ([p.tolist() for p in SyntheticPrompts(count=2, length=5, vocab_size=9, seed=4)] for _ in range(2))

    assert first == again


@pytest.mark.parametrize(
    ("field", "value"), [("count", 0), ("length", 0), ("vocab_size", 0), ("shared", -1), ("shared", 9), ("seed", -1)]
)
def test_bad_sizes_are_refused_by_name(field: str, value: int) -> None:
    sizes = {"count": 1, "length": 8, "vocab_size": 10, field: value}

    with pytest.raises(ConfigError, match=field):
        SyntheticPrompts(**sizes)
