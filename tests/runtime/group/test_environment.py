"""A rank's place, read from the environment; processes as the kernel knows them; how an end is told."""

import subprocess
import sys

import pytest

from tidegate.base import ConfigError
from tidegate.runtime.group import GroupEnvironment, RankFailure, RanksOutcome
from tidegate.runtime.group.processes import ProcessFacts

GOOD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_place_is_read_and_written() -> None:
    place = GroupEnvironment.read(GOOD)

    assert place == GroupEnvironment(1, 2, "127.0.0.1", 29500)
    assert GroupEnvironment.read(place.variables()) == place
    assert GroupEnvironment.read(GOOD | {"TORCHELASTIC_USE_AGENT_STORE": "True"}).is_store_hosted


@pytest.mark.parametrize("name", GOOD)
def test_missing_variable_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not set") as caught:
        GroupEnvironment.read({key: value for key, value in GOOD.items() if key != name})

    assert caught.value.evidence["field"] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "2"),
        ("RANK", "-1"),
        ("RANK", "one"),
        ("RANK", "²"),
        ("WORLD_SIZE", "0"),
        ("WORLD_SIZE", "1" * 5000),
        ("MASTER_ADDR", ""),
        ("MASTER_PORT", "65536"),
        ("MASTER_PORT", "1e3"),
    ],
)
def test_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        GroupEnvironment.read(GOOD | {name: value})


@pytest.mark.parametrize(
    ("rank", "is_hosted", "hosts"), [(0, False, True), (0, True, False), (1, False, False), (1, True, False)]
)
def test_rank_0_hosts_the_store_unless_the_launcher_does(rank: int, is_hosted: bool, hosts: bool) -> None:
    assert GroupEnvironment(rank, 2, "localhost", 1, is_hosted).is_host is hosts


def test_process_of_the_same_number_is_not_taken_for_another() -> None:
    facts = ProcessFacts.of_this_process()
    earlier = ProcessFacts(facts.host, facts.pid, facts.start_ticks - 1)

    assert ProcessFacts.from_text(facts.to_text().encode()) == facts
    assert facts.is_visible()
    with pytest.raises(ProcessLookupError):
        earlier.open()


def test_ended_process_is_gone() -> None:
    facts = ProcessFacts.of_this_process()
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()

    with pytest.raises(ProcessLookupError):
        ProcessFacts(facts.host, process.pid, facts.start_ticks).open()


def test_process_elsewhere_is_not_visible() -> None:
    facts = ProcessFacts.of_this_process()

    assert not ProcessFacts("another machine", facts.pid, facts.start_ticks).is_visible()


@pytest.mark.parametrize(
    ("failures", "exit_code", "text"),
    [
        ((), 0, ""),
        ((RankFailure(2, -9), RankFailure(0, 70)), 137, "rank 2 failed first: killed by SIGKILL"),
        ((RankFailure(1, 1, "ActorDiedError"),), 1, "rank 1 failed first: ActorDiedError"),
    ],
)
def test_outcome_is_that_of_the_first_failure(failures: tuple[RankFailure, ...], exit_code: int, text: str) -> None:
    outcome = RanksOutcome(failures)

    assert (outcome.exit_code, outcome.text) == (exit_code, text)
