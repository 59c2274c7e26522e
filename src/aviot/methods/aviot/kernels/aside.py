"""Work beside the main line: launches that nothing waits for yet go to a second stream."""

from functools import cache
from types import TracebackType

import torch


@cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class Aside:
    """Launches in its `with` run beside those after it, until `wait`.

    What they read and write is the main line's: allocated before, and kept until the wait. Where there is no GPU they
    run in order.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = _second_stream(device) if device.type == "cuda" else None
        self._switch = torch.cuda.stream(self._stream)  # nothing for None

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._switch.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._switch.__exit__(kind, error, trace)

    def wait(self) -> None:
        """The main line goes on when they are done."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
