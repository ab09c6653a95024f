"""A rank's place in its group, as environment variables: those that ``torchrun`` sets, and our launchers too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.base import ConfigError, check_integer, check_text, shown
from tidegate.runtime.group.exchange import MAX_RANKS

_HOSTED = "TORCHELASTIC_USE_AGENT_STORE"


@dataclass(frozen=True, slots=True)
class GroupEnvironment:
    """Who a rank is and where the group meets: ``address`` and ``port`` of the store.

    ``is_store_hosted`` says that the launcher runs the store; otherwise rank 0 does.
    """

    rank: int
    size: int
    address: str
    port: int
    is_store_hosted: bool = False

    def __post_init__(self) -> None:
        check_integer("WORLD_SIZE", self.size, 1, MAX_RANKS)
        check_integer("RANK", self.rank, 0, self.size - 1)
        check_text("MASTER_ADDR", self.address)
        check_integer("MASTER_PORT", self.port, 1, 65535)

    @property
    def is_loopback(self) -> bool:
        """Whether the group lives on this machine alone."""
        return is_loopback(self.address)

    @property
    def is_host(self) -> bool:
        """Whether this rank runs the store."""
        return self.rank == 0 and not self.is_store_hosted

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> GroupEnvironment:
        """Read the variables; raises ``ConfigError`` naming the one that is missing or wrong."""
        return cls(
            rank=_integer(variables, "RANK"),
            size=_integer(variables, "WORLD_SIZE"),
            address=_text(variables, "MASTER_ADDR"),
            port=_integer(variables, "MASTER_PORT"),
            is_store_hosted=variables.get(_HOSTED) == "True",
        )

    def variables(self) -> dict[str, str]:
        """Return what ``read`` reads. The local rank is the rank, which suits one machine and CPU ranks."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            _HOSTED: str(self.is_store_hosted),
        }


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable from this machine alone."""
    return address == "localhost" or address.startswith("127.") or address == "::1"


def _text(variables: Mapping[str, str], name: str) -> str:
    if name not in variables:
        message = f"{name} is not set: start the ranks with torchrun or with tidegate's launcher"
        raise ConfigError(message, field=name, value=None)
    return variables[name]


def _integer(variables: Mapping[str, str], name: str) -> int:
    text = _text(variables, name)
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"{name}={shown(text)} must be an integer that is not negative", field=name, value=text)
    return int(text[:10])
