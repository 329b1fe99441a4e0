"""Daemon threads that run EVM jobs, so that the event loop keeps answering.

`concurrent.futures` would join its threads when the process ends, and a job can take longer than
the second that SIGTERM is given.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

# The EVM's nested calls become nested Python calls, up to 1,024 deep.
_STACK_BYTES = 64 * 1024 * 1024


class WorkerThreads:
    """A queue of jobs, run in order by `count` threads."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._count = count
        default_bytes = threading.stack_size(_STACK_BYTES)
        try:
            for number in range(count):
                threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()
        finally:
            threading.stack_size(default_bytes)

    async def run(self, job: Callable[[], T]) -> T:
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return await asyncio.wrap_future(future)

    def stop(self) -> None:
        """End the threads after the jobs already queued; does not wait for them."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            future, job = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except BaseException as failure:  # noqa: BLE001 - raised where the job is awaited
                future.set_exception(failure)
