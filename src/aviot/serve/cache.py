"""Caches of the server, bounded in bytes, whose entries are computed once however many requests wait for them."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class ByteCache(Generic[T]):
    """A cache of the most recently used values, whose sizes together stay within a limit; for one event loop."""

    def __init__(self, most_bytes: int, measure: Callable[[T], int]) -> None:
        self.most_bytes, self._measure = most_bytes, measure
        self._held: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self.used = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable) -> T | None:
        """Return a value and count it as used; None if it is not there."""
        found = self._held.get(key)
        if found is None:
            return None
        self._held.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, value: T) -> None:
        """Store a value as the latest; those that were used longest ago leave. One that is too large is not stored."""
        self._drop(key)
        size = self._measure(value)
        if size > self.most_bytes:
            return
        self._held[key] = value, size
        self.used += size
        while self.used > self.most_bytes:
            self._drop(next(iter(self._held)))

    def refresh(self, key: Hashable) -> None:
        """Measure a value again, if it is there."""
        if key in self._held:
            self.put(key, self._held[key][0])

    def peek(self, key: Hashable) -> T | None:
        """Return a value without counting it as used; None if it is not there."""
        found = self._held.get(key)
        return None if found is None else found[0]

    def _drop(self, key: Hashable) -> None:
        found = self._held.pop(key, None)
        self.used -= 0 if found is None else found[1]


@dataclass(eq=False)
class _Flight(Generic[T]):
    """A computation under way or just done, and the number of requests that use it."""

    task: "asyncio.Task[T]"
    users: int = 0


class SharedWork(Generic[T]):
    """Computations by key: requests that come while one is under way share it, and it ends when none is left.

    At most `places` different ones are in use at a time, from before their work until their last user leaves; further
    ones wait in order.
    """

    def __init__(self, places: int) -> None:
        self._places = asyncio.Semaphore(places)
        self._flights: dict[Hashable, _Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    @asynccontextmanager
    async def shared(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """Yield the result of `make`, called once for all who are in this block with the same key."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(self._made(make)))
            flight.task.add_done_callback(_retrieved)
        flight.users += 1
        try:
            yield await asyncio.shield(flight.task)
        finally:
            flight.users -= 1
            if not flight.users:
                if self._flights.get(key) is flight:
                    del self._flights[key]
                self._end(flight)

    async def _made(self, make: Callable[[], Awaitable[T]]) -> T:
        await self._places.acquire()
        try:
            return await make()
        except BaseException:
            self._places.release()
            raise

    def _end(self, flight: _Flight[T]) -> None:
        """Give the place back, now or when the cancelled work has ended."""
        if not flight.task.done():
            flight.task.cancel()
        elif not flight.task.cancelled() and flight.task.exception() is None:
            self._places.release()


def _retrieved(task: "asyncio.Task[T]") -> None:
    """Take a task's error, which its users have, or have left without."""
    if not task.cancelled():
        task.exception()
