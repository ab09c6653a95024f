import itertools

import numpy as np
import pytest

from tidegate.base import InternalError
from tidegate.request import Phase, check_move, check_moves

LEGAL = {
    (Phase.WAITING, Phase.PREFILL),
    (Phase.WAITING, Phase.FINISHED),
    (Phase.PREFILL, Phase.PREFILL),
    (Phase.PREFILL, Phase.DECODE),
    (Phase.PREFILL, Phase.SUSPENDED),
    (Phase.PREFILL, Phase.FINISHED),
    (Phase.DECODE, Phase.DECODE),
    (Phase.DECODE, Phase.SUSPENDED),
    (Phase.DECODE, Phase.FINISHED),
    (Phase.SUSPENDED, Phase.PREFILL),
    (Phase.SUSPENDED, Phase.FINISHED),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Phase, Phase)))
def test_only_the_moves_of_the_table_are_legal(old: Phase, new: Phase) -> None:
    if (old, new) in LEGAL:
        check_move(old, new)
    else:
        with pytest.raises(InternalError, match=f"from {old.name} to {new.name}"):
            check_move(old, new)


def test_one_bad_move_among_many_is_named() -> None:
    phases = np.array([Phase.DECODE, Phase.FINISHED, Phase.PREFILL], dtype=np.int8)

    with pytest.raises(InternalError, match="from FINISHED to DECODE"):
        check_moves(phases, Phase.DECODE)
