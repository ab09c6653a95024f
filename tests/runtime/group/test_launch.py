"""The launcher: what ranks find in their environment, how their end is told, and that none is left behind."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.runtime.group.launcher_program import WAITING
from tidegate.base import ConfigError
from tidegate.runtime.group import EXIT_RANK_DIED, GroupEnvironment, RankFailure
from tidegate.runtime.group.launch import run_ranks

ROOT = Path(__file__).parents[3]
GUARD_S = 60.0
PROMISE_S = 10.0


def program(*code: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(("import os, signal, sys", "rank = int(os.environ['RANK'])", *code))]


def variables() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def is_gone(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(PROMISE_S * 1e3))


def test_each_rank_finds_its_place_in_the_environment(capfd: pytest.CaptureFixture[str]) -> None:
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE", "OWN")
    show = f"os.write(1, (' '.join(os.environ[n] for n in {names}) + chr(10)).encode())"

    outcome = run_ranks(3, program(show), environment={"OWN": "kept"})

    lines = [line.split() for line in sorted(capfd.readouterr().out.splitlines())]
    assert (outcome.exit_code, outcome.failures) == (0, ())
    assert [[rank, size, address, own] for rank, size, address, _, _, own in lines] == [
        [str(rank), "3", "127.0.0.1", "kept"] for rank in range(3)
    ]
    places = [GroupEnvironment.read(dict(zip(names, line, strict=True))) for line in lines]
    assert {place.is_store_hosted for place in places} == {True}
    assert len({place.port for place in places}) == 1


def test_exit_code_and_first_failure_are_told() -> None:
    outcome = run_ranks(2, program("sys.exit(7 * rank)"))

    assert (outcome.exit_code, outcome.failures) == (7, (RankFailure(1, 7),))
    assert outcome.text == "rank 1 failed first: exit code 7"


def test_signal_is_told() -> None:
    outcome = run_ranks(2, program("if rank == 0: os.kill(os.getpid(), signal.SIGSEGV)"))

    assert (outcome.exit_code, outcome.text) == (128 + signal.SIGSEGV, "rank 0 failed first: killed by SIGSEGV")


@pytest.mark.parametrize("handler", ["SIG_DFL", "SIG_IGN"])
def test_survivors_that_do_not_end_are_ended(handler: str) -> None:
    pids: list[int] = []
    code = ("if rank == 1: sys.exit(3)", f"signal.signal(signal.SIGTERM, signal.{handler})", "signal.pause()")

    outcome = run_ranks(3, program(*code), naming_s=0.2, ending_s=0.2, on_start=pids.extend)

    assert (outcome.failures, outcome.stopped) == ((RankFailure(1, 3),), (0, 2))
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_ranks_end_when_waiting_for_them_fails() -> None:
    pids: list[int] = []

    def fail(started: Sequence[int]) -> None:
        pids.extend(started)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_ranks(2, WAITING, on_start=fail)

    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_ranks_end_when_the_launcher_is_killed() -> None:
    argv = [sys.executable, "-m", "tests.runtime.group.launcher_program"]
    with subprocess.Popen(argv, env=variables(), stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        ranks = [os.pidfd_open(int(pid)) for pid in launcher.stdout.readline().split()]
        launcher.kill()

    were_gone = [is_gone(rank) for rank in ranks]
    for rank in ranks:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(rank, signal.SIGKILL)
        os.close(rank)
    assert were_gone == [True, True]


def test_killed_rank_is_named_by_the_others_before_they_are_ended(capfd: pytest.CaptureFixture[str]) -> None:
    argv = [sys.executable, "-m", "tests.runtime.group.rank_program", "die", "1"]

    outcome = run_ranks(3, argv, environment=variables())

    assert outcome.failures[0] == RankFailure(1, -signal.SIGKILL)
    assert {(f.rank, f.code) for f in outcome.failures[1:]} == {(0, EXIT_RANK_DIED), (2, EXIT_RANK_DIED)}
    assert outcome.stopped == ()
    errors = capfd.readouterr().err
    assert all(f"rank {rank}: rank 1 died: the process is gone" in errors for rank in (0, 2))


def test_torchrun_starts_the_same_program() -> None:
    argv = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]

    ended = subprocess.run(
        [sys.executable, *argv, "-m", "tests.runtime.group.rank_program", "talk", "3"],
        env=variables(),
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )

    first, second = ended.stdout.splitlines()
    assert (ended.returncode, first) == (0, second)
    assert first.startswith("heard ")


@pytest.mark.parametrize(
    ("arguments", "field"), [((0, ["true"]), "num_ranks"), ((2, []), "argv"), ((True, ["true"]), "num_ranks")]
)
def test_misuse_is_refused(arguments: tuple[int, list[str]], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        run_ranks(*arguments)
