"""Translates PostgreSQL's refusals of facts into ImpossibleFact."""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from ltzd.errors import ImpossibleFact

_REFUSALS = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError)
"""A CHECK, such as that of a balance, a duplicate key, or a number that no column holds."""


@contextmanager
def refused_as_impossible() -> Iterator[None]:
    """Raises ImpossibleFact if PostgreSQL refuses the facts that the block writes."""
    try:
        yield
    except _REFUSALS as error:
        rule = getattr(error, "constraint_name", None) or error.sqlstate
        raise ImpossibleFact(f"A fact of the chain contradicts the index ({rule})") from error
