"""The store in which a group meets: ``torch.distributed``'s, over TCP."""

from __future__ import annotations

import socket
from datetime import timedelta

from torch._C._distributed_c10d import Store, TCPStore

from tidegate.runtime.group.environment import GroupEnvironment, is_loopback

__all__ = ["Store", "TCPStore", "host_store", "listen", "open_store", "store_host"]


def open_store(environment: GroupEnvironment, timeout_s: float) -> TCPStore:
    """Connect to the group's store, waiting for it up to ``timeout_s``."""
    timeout = timedelta(seconds=timeout_s)
    return TCPStore(environment.address, environment.port, None, False, timeout, wait_for_workers=False)


def listen(address: str, port: int = 0) -> socket.socket:
    """Return a listening socket for ``host_store``, on any free port unless one is given.

    The store by itself would listen on all interfaces: this one listens on ``address`` only if that is loopback.
    """
    return socket.create_server((address if is_loopback(address) else "", port))


def host_store(address: str, listener: socket.socket, timeout_s: float) -> TCPStore:
    """Run a store behind ``listener``, which it takes over, for as long as the result lives."""
    port = listener.getsockname()[1]
    timeout = timedelta(seconds=timeout_s)
    return TCPStore(
        address, port, None, True, timeout, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=True
    )


def store_host(environment: GroupEnvironment) -> tuple[tuple[int, ...], str]:
    """Return which ranks are gone when the store is, and that in words."""
    where = f"the store at {environment.address}:{environment.port}"
    if environment.is_store_hosted:
        return (), f"{where} is gone, and with it the launcher"
    return (0,), f"{where} is gone, and with it rank 0 that hosts it"
