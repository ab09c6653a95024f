"""What the benchmark does while its model has nothing to do."""

from __future__ import annotations

from tests.cli.alphabet_model import AlphabetModel
from tidegate.base import VirtualClock
from tidegate.cli.settings import ModelSettings
from tidegate.cli.target import ModelTarget
from tidegate.request import Request, TokenDelta, token_array


class RestingModel(AlphabetModel):
    """Brings nothing until the clock says ``until_s``."""

    clock = VirtualClock()
    until_s = 0.05

    def step(self) -> list[TokenDelta]:
        return [] if self.clock.now() < self.until_s else list(super().step())

    def rest(self, most_s: float | None) -> None:
        left = self.until_s - self.clock.now()
        self.clock.wait(left if most_s is None else min(left, most_s))


def test_it_rests_with_the_model_but_not_past_the_next_arrival() -> None:
    model = RestingModel(ModelSettings())
    model.clock = VirtualClock()
    target = ModelTarget(model, model.clock)
    target.submit(Request(request_id="a", prompt=token_array([1]), max_tokens=1))

    assert target.wait(0.02) == []
    assert model.clock.now() == 0.02
    assert target.wait(None) == []
    assert model.clock.now() == 0.05
    assert [progress.request_id for progress in target.wait(None)] == ["a"]


def test_it_sleeps_until_the_next_arrival_when_nothing_is_in_flight() -> None:
    clock = VirtualClock()

    assert ModelTarget(AlphabetModel(ModelSettings()), clock).wait(0.3) == []
    assert clock.now() == 0.3
