"""A plugin that freezes each test once for 1.2 s, as busy machines do (`make campaign-freezes`).

A test that fails has a time limit that such a machine cannot keep.
"""

import os
import random
import selectors
import time
from collections.abc import Generator

import pytest

SECONDS = 1.2
MOST_TURNS = 25
"""The freeze comes in one of the first turns of the event loop, more often in an early one."""

_SEED = os.environ.get("SEED", "1")


class _NextFreeze:
    turns_left = 0


class _FreezingSelects(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(timeout)
        if _NextFreeze.turns_left:
            _NextFreeze.turns_left -= 1
            if not _NextFreeze.turns_left:
                time.sleep(SECONDS)
        return events


selectors.DefaultSelector = _FreezingSelects  # type: ignore[misc] # asyncio makes its selector of this name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    _NextFreeze.turns_left = 1 + int(MOST_TURNS ** random.Random(_SEED + item.nodeid).random())
    try:
        return (yield)
    finally:
        _NextFreeze.turns_left = 0
