"""The sleep of idle ranks: one blocking wait in the store per rank, ended by rank 0.

A store's wait that times out complains on stderr and cannot be interrupted, so a thread waits without end on a
connection of its own, and ``sleep`` waits for the thread. Each rank has keys of its own, so that it can end its thread.
Wake-ups carry the number of collectives done, which is equal on all ranks that sleep: a late one never ends a later
sleep.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta

from torch.distributed import DistStoreError

from tidegate.runtime.group.store import Store

_LONG = timedelta(days=1)


class WakeUp:
    """One rank's side. ``wait_store`` is blocked all the time, ``send_store`` is used for short calls only."""

    def __init__(self, rank: int, size: int, wait_store: Store, send_store: Store) -> None:
        self._rank, self._size, self._wait_store, self._send_store = rank, size, wait_store, send_store
        self._changed = threading.Condition()
        self._now = self._woken = -1
        self._is_pending = self._is_over = False
        self._num_sent = self._num_received = 0
        self._thread = threading.Thread(target=self._listen, name="tidegate-wake-up", daemon=True)
        if rank != 0:
            self._thread.start()

    def sleep(self, now: int, timeout_s: float) -> bool:
        """Wait for the wake-up of the sleep after ``now`` collectives; True also when the group ends."""
        with self._changed:
            self._now = now
            if self._is_pending:
                self._send()
            self._changed.wait_for(lambda: self._woken >= now or self._is_over, timeout_s)
            self._is_pending = False
            return self._woken >= now or self._is_over

    def wake(self, now: int) -> None:
        """End the sleep after ``now`` collectives on all ranks; unless this rank is in it, also the next one.

        For a thread that learns of a request cannot know whether the step under way has seen it.
        """
        with self._changed:
            self._now = max(self._now, now)
            self._is_pending = True
            self._send()

    def end(self) -> None:
        """End this rank's sleep for good, because the group ends."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread as well."""
        self.end()
        if self._thread.is_alive():
            with suppress(RuntimeError):  # the store may be gone, and then the thread ends by itself
                self._send_store.set(_key(self._rank, self._num_received), "0")
            self._thread.join(1.0)

    def _send(self) -> None:
        if self._woken < self._now:
            for rank in range(1, self._size):
                self._send_store.set(_key(rank, self._num_sent), str(self._now))
            self._num_sent += 1
            self._woken = self._now
            self._changed.notify_all()

    def _listen(self) -> None:
        while not self._is_over:
            key = _key(self._rank, self._num_received)
            try:
                self._wait_store.wait([key], _LONG)
                now = int(self._wait_store.get(key))
                self._wait_store.delete_key(key)
            except DistStoreError:
                continue  # the long wait is over, and nothing else
            except RuntimeError:
                return  # the store is gone: liveness ends the sleep
            with self._changed:
                self._num_received += 1
                self._woken = max(self._woken, now)
                self._changed.notify_all()


def _key(rank: int, index: int) -> str:
    return f"wake/{rank}/{index}"
