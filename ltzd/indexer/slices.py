"""Long work cut into slices, between which other tasks of the process run."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

LOGS_PER_SLICE = 200
"""Logs that are decoded or compared before other tasks of this process run."""


def slices(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of at most `size` items, in their order."""
    rest = iter(items)
    while part := list(itertools.islice(rest, size)):
        yield part
