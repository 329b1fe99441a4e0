"""Rows that PostgreSQL does not let a rule erase: they are passed over, and hold up no other row.

A page of rows is one statement, which one row can spoil, by a constraint or a trigger of the
database's administrator. The page, and every page after it, would fail in each round.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import asyncpg
import structlog

log = structlog.get_logger()

Row = TypeVar("Row")
Change = Callable[[Sequence[Row]], Awaitable[object]]


_OF_A_ROW: Final = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.DataError,
    asyncpg.PLPGSQLError,
)
"""Other refusals, such as a lack of privileges, concern every row."""
_MOST: Final = 100
"""The most rows of one round that are passed over: each costs a dozen statements."""


class RefusedRows:
    """The rows of one round that were passed over, by rule; the next round tries them again.

    `error` is the last refusal.
    """

    def __init__(self) -> None:
        self._rows: defaultdict[object, list[Any]] = defaultdict(list)
        self.error: asyncpg.PostgresError | None = None

    def of(self, rule: object) -> list[Any]:
        return self._rows[rule]

    async def change(self, rule: object, rows: Sequence[Row], change: Change[Row]) -> None:
        """Call `change` with all rows, or with fewer at once until only refused ones are left.

        `change` must be safe to repeat. Raises the refusal of one row too many.
        """
        try:
            await change(rows)
        except _OF_A_ROW as error:
            if len(rows) > 1:
                middle = len(rows) // 2
                await self.change(rule, rows[:middle], change)
                await self.change(rule, rows[middle:], change)
                return
            if sum(map(len, self._rows.values())) >= _MOST:
                raise
            (row,) = rows
            self._rows[rule].append(row)
            self.error = error
            # Other keys are addresses of persons.
            shown = str(row) if isinstance(row, UUID) else None
            log.error("retention.row_refused", rule=str(rule), row=shown, code=error.sqlstate)
