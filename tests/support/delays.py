"""A plugin that holds each task back at random moments (`make campaign-delays`).

On a busy machine a task goes on long after what it waited for is there, and other tasks run first.
A test that fails only here relies on an order that nothing promises: it should wait for the fact
that it checks.
"""

import asyncio
import inspect
import os
import random
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

SHARE = 0.1
"""The share of a task's steps that come late."""

MEAN_SECONDS = 0.015
MOST_SECONDS = 0.12

_SEED = os.environ.get("SEED", "1")
_random = random.Random(_SEED)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _random.seed(_SEED + item.nodeid)


class _Late(Coroutine[Any, Any, Any]):
    """Runs a coroutine, and sleeps before some of its steps."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._steps = self._run()

    def _run(self) -> Generator[Any, Any, Any]:
        coroutine, error, value = self._coroutine, None, None
        while True:
            try:
                awaited = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as end:
                return end.value
            value = error = None
            try:
                value = yield awaited
                if _random.random() < SHARE:
                    pause = min(_random.expovariate(1 / MEAN_SECONDS), MOST_SECONDS)
                    yield from asyncio.sleep(pause).__await__()
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 # what a task is thrown goes to its coroutine
                error = thrown

    def send(self, value: Any) -> Any:
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        if inspect.getgeneratorstate(self._steps) == inspect.GEN_CREATED:
            return self._coroutine.throw(*error)
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)


def _late_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
    return asyncio.Task(_Late(coroutine), loop=loop, **options)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: Any = None) -> None:
        super().__init__(selector)
        self.set_task_factory(_late_task)


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _Loop()


asyncio.set_event_loop_policy(_Policy())
