"""The carrier between processes: ``torch.distributed``, with gloo on CPU tensors for what ranks tell each other.

Nothing is pickled: rows are int64, payloads are bytes whose length the rows have told. Engines get a process group of
their own (``data_group``), so that a collective in a layer and one of the step never meet.

gloo cannot be aborted from outside, but a receive that times out fails every pending call of its group, on all
threads of the process. That is how a wait for a dead rank ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist

from tidegate.base import Closed, ConfigError, Int64Array, RankError, StateError
from tidegate.runtime.group.environment import GroupEnvironment
from tidegate.runtime.group.exchange import check_length, check_payloads, check_rows
from tidegate.runtime.group.idle import WakeUp
from tidegate.runtime.group.liveness import Liveness, end_process
from tidegate.runtime.group.store import TCPStore, host_store, listen, open_store, store_host
from tidegate.runtime.group.verdict import LivenessConfig, Verdict

_BREAK_TAG = 0x7D6E
_LEAVE_S = 2.0
_HOST_LEAVE_S = 10.0
"""The store ends with its host, so the host waits longer for the others to leave."""


class DistributedExchange:
    """One rank per process. Joining waits up to ``join_s`` for all ranks, a collective up to ``collective_s``.

    ``data_backend`` is that of the engines' group, None if they need none; one less group idles more cheaply.
    Use it from one thread; ``wake`` may come from any. Sets ``GLOO_SOCKET_IFNAME`` to the loopback device when the
    group meets there and nothing else is said. ``on_dead`` runs in another thread: see ``liveness``.
    """

    def __init__(
        self,
        environment: GroupEnvironment,
        data_backend: Literal["gloo", "nccl"] | None = "gloo",
        *,
        liveness: LivenessConfig | None = None,
        on_dead: Callable[[Verdict], None] = end_process,
        join_s: float = 120.0,
        collective_s: float = 1800.0,
    ) -> None:
        if dist.is_initialized():
            raise StateError("torch.distributed is initialised already: one group per process")
        self._environment = environment
        self._rows: dict[int, tuple[torch.Tensor, torch.Tensor, Int64Array, Int64Array]] = {}
        self._is_closed = False
        self._groups: tuple[dist.ProcessGroup, ...] = ()
        self._store, watch_store, wait_store = self._connect(join_s)
        self._wake_up = WakeUp(environment.rank, environment.size, wait_store, self._store)
        self._liveness = Liveness(
            environment.rank,
            environment.size,
            watch_store,
            liveness or LivenessConfig(),
            store_host=store_host(environment),
            on_verdict=self._break,
            on_dead=on_dead,
        )
        try:
            self._liveness.start(join_s)
            with self._liveness:
                self._create_groups(data_backend, timedelta(seconds=collective_s))
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Number of ranks in all."""
        return self._environment.size

    @property
    def local(self) -> tuple[int, ...]:
        """This rank alone."""
        return (self._environment.rank,)

    @property
    def data_group(self) -> dist.ProcessGroup:
        """The group for engines, with all ranks, of the backend that was asked for."""
        if len(self._groups) < 2:
            raise StateError("there is no data group: the exchange was made with data_backend=None, or is closed")
        return self._groups[1]

    def check(self) -> None:
        """Raise ``RankError`` if a death is known: what to ask when a collective of ``data_group`` has failed."""
        self._liveness.check()

    def gather(self, rows: Int64Array) -> Int64Array:
        """Exchange one row per rank: ``[1, width]`` in, ``[size, width]`` out."""
        check_rows(rows, 1)
        width = rows.shape[1]
        if width not in self._rows:
            self._rows[width] = _row_tensors(width, self.size)
        own, all_rows, own_array, all_array = self._rows[width]
        own_array[:] = rows[0]
        with self._liveness.next_call():
            _all_gather(all_rows, own)
        self._liveness.count()
        return all_array.copy()

    def broadcast(self, payload: bytes, num_bytes: int) -> bytes:
        """Return rank 0's payload everywhere."""
        if self._environment.rank == 0:
            check_length("payload", payload, num_bytes)
        if num_bytes == 0:
            self._liveness.check()
            return b""
        tensor = _from_bytes(payload) if self._environment.rank == 0 else torch.empty(num_bytes, dtype=torch.uint8)
        with self._liveness.next_call():
            dist.broadcast(tensor, src=0)
        self._liveness.count()
        return tensor.numpy().tobytes()

    def collect(self, payloads: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
        """Bring every rank's payload to rank 0, by one message from each that has any."""
        rank = self._environment.rank
        check_payloads(payloads, sizes, (rank,), self.size)
        with self._liveness:
            if rank != 0:
                if sizes[rank]:
                    dist.send(_from_bytes(payloads[0]), dst=0)
                return []
            tensors = {r: torch.empty(n, dtype=torch.uint8) for r, n in enumerate(sizes) if n and r}
            for work in [dist.irecv(tensor, src=r) for r, tensor in tensors.items()]:
                assert work is not None  # None only outside the group
                work.wait()
        return [payloads[0], *(tensors[r].numpy().tobytes() if r in tensors else b"" for r in range(1, self.size))]

    def sleep(self, timeout_s: float) -> bool:
        """Wait for rank 0's wake-up; a death ends the sleep with ``RankError``."""
        with self._liveness.next_call():
            is_woken = self._wake_up.sleep(self._liveness.num_calls, timeout_s)
        self._liveness.check()
        return is_woken

    def wake(self) -> None:
        """End the sleep of all ranks, or else the next one, whether rank 0 sleeps itself or not."""
        if self._is_closed:
            raise Closed("the exchange is closed")
        if self._environment.rank != 0:
            raise StateError(f"rank {self._environment.rank} cannot wake the others: only rank 0 does")
        with suppress(RuntimeError):  # no store any more: the next collective tells who is dead
            self._wake_up.wake(self._liveness.num_calls)

    def close(self) -> None:
        """Leave the group. Waits a little for the others, longer where the store lives."""
        if self._is_closed:
            return
        self._is_closed = True
        self._liveness.leave(_HOST_LEAVE_S if self._environment.is_host else _LEAVE_S)
        self._wake_up.close()
        if dist.is_initialized():
            self._groups = ()
            dist.destroy_process_group()

    def _connect(self, timeout_s: float) -> list[TCPStore]:
        """Open three connections, for: groups and wake-ups, liveness, the sleep."""
        place = self._environment
        try:
            first = [_host(place, timeout_s)] if place.is_host else []
            return first + [open_store(place, timeout_s) for _ in range(3 - len(first))]
        except RuntimeError as error:
            ranks, why = store_host(place)
            raise RankError(f"{why}: no answer within {timeout_s:g} s", ranks=ranks) from error

    def _create_groups(self, data_backend: str | None, timeout: timedelta) -> None:
        if self._environment.is_loopback:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        rank, size = self._environment.rank, self._environment.size
        dist.init_process_group("gloo", store=self._store, rank=rank, world_size=size, timeout=timeout)
        control = dist.group.WORLD
        assert control is not None  # it was just created
        self._groups = (control,)
        if data_backend is not None:
            self._groups = (control, dist.new_group(backend=data_backend, timeout=timeout))

    def _break(self) -> None:
        """Fail whatever this rank waits for, now and later. Called by the liveness thread."""
        self._wake_up.end()
        for group in self._groups:
            with suppress(RuntimeError):  # which is how it works
                _break_group(group, (self._environment.rank + 1) % self.size)


def _host(place: GroupEnvironment, timeout_s: float) -> TCPStore:
    try:
        listener = listen(place.address, place.port)
    except OSError as error:
        message = f"MASTER_PORT={place.port} must be a free port of {place.address}: {error.strerror}"
        raise ConfigError(message, field="MASTER_PORT", value=place.port) from error
    return host_store(place.address, listener, timeout_s)


def _break_group(group: dist.ProcessGroup, peer: int) -> None:
    if dist.get_backend(group) == "gloo":
        group.recv([torch.empty(1, dtype=torch.uint8)], peer, _BREAK_TAG).wait(timedelta(milliseconds=1))
    else:
        group.abort()


def _all_gather(output: torch.Tensor, own: torch.Tensor) -> None:
    dist.all_gather_single(output, own)


def _row_tensors(width: int, size: int) -> tuple[torch.Tensor, torch.Tensor, Int64Array, Int64Array]:
    own, all_rows = np.zeros(width, np.int64), np.zeros((size, width), np.int64)
    return torch.from_numpy(own), torch.from_numpy(all_rows).view(-1), own, all_rows


def _from_bytes(payload: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(payload), dtype=torch.uint8)
