import pytest

from tidegate.request import CacheAccess, Request, token_array
from tidegate.scheduling.shared_prefix import PrefixOwners

UNIT = 4


def request(
    tokens: list[int], *, salt: str | None = None, lora_id: str | None = None, access: CacheAccess = "read_write"
) -> Request:
    return Request(request_id="r", prompt=token_array(tokens), salt=salt, lora_id=lora_id, access=access)


def is_deferred(owner: Request, follower: Request, *, published: int = 0, reused: int = 0) -> bool:
    owners = PrefixOwners(UNIT)
    owners.add(owner, owner.prompt, published)
    return owners.is_computing(follower, follower.prompt, reused)


def test_equal_first_block_is_waited_for() -> None:
    assert is_deferred(request([1, 2, 3, 4, 5]), request([1, 2, 3, 4, 9]))


def test_unlike_first_block_is_not() -> None:
    assert not is_deferred(request([1, 2, 3, 4, 5]), request([1, 2, 3, 5, 5]))


def test_equal_block_behind_another_prefix_is_not() -> None:
    owner, follower = request([9, 2, 3, 4, 5, 6, 7, 8]), request([1, 2, 3, 4, 5, 6, 7, 8])

    assert not is_deferred(owner, follower, published=4, reused=4)


def test_next_block_behind_an_equal_cached_prefix_is_waited_for() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 7, 8]

    assert is_deferred(request(tokens), request(tokens), published=4, reused=6)


def test_prefix_shorter_than_a_block_is_not() -> None:
    assert not is_deferred(request([1, 2, 3]), request([1, 2, 3]))


@pytest.mark.parametrize(
    "other",
    [
        request([1, 2, 3, 4, 5], salt="b"),
        request([1, 2, 3, 4, 5], lora_id="a"),
        request([1, 2, 3, 4, 5], access="none"),
    ],
)
def test_other_scope_and_no_access_defer_nothing(other: Request) -> None:
    plain = request([1, 2, 3, 4, 5])

    assert not is_deferred(plain, other)
    assert not is_deferred(other, plain)


def test_one_that_only_reads_is_no_owner_but_may_follow() -> None:
    reader, plain = request([1, 2, 3, 4, 5], access="read"), request([1, 2, 3, 4, 5])

    assert not is_deferred(reader, plain)
    assert is_deferred(plain, reader)
