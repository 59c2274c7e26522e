"""Work for a client, which ends when the client leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from aviot.web.body import Receive
from aviot.web.refusal import Disconnected

T = TypeVar("T")


async def left(receive: Receive) -> None:
    """Return when the client has left; its request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work; if the client leaves first, the work is cancelled and Disconnected raised."""
    task, watch = asyncio.create_task(work), asyncio.create_task(left(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Disconnected
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
