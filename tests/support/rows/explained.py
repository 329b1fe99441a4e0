"""A connection that counts the rows which its queries read."""

import json
from typing import Any

from ltzd.store.database import Connection


class Explained:
    """A connection that runs its queries under EXPLAIN ANALYZE and counts the rows they read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.read = 0.0

    async def fetch(self, sql: str, *arguments: object) -> list[Any]:
        (row,) = await self._connection.fetch("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, *arguments)
        self.read += _rows_read(json.loads(row[0])[0]["Plan"])
        actual: list[Any] = await self._connection.fetch(sql, *arguments)
        return actual

    async def fetchrow(self, sql: str, *arguments: object) -> Any:
        return (await self.fetch(sql, *arguments))[0]


def _rows_read(plan: dict[str, Any]) -> float:
    """Sums the rows read by all scans of the plan, including those that a filter removed."""
    own = 0.0
    if "Scan" in plan["Node Type"]:
        thrown_away = plan.get("Rows Removed by Filter", 0)
        own = (plan["Actual Rows"] + thrown_away) * plan["Actual Loops"]
    return own + sum(_rows_read(child) for child in plan.get("Plans", []))
