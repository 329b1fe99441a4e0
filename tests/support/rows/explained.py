"""A connection that counts the rows which its queries read."""

import json
from dataclasses import dataclass
from typing import Any

from ltzd.store.database import Connection


@dataclass
class Explained:
    """Runs each query under EXPLAIN ANALYZE, too. `read` includes rows that a filter removed."""

    connection: Connection
    read: float = 0.0

    async def fetch(self, sql: str, *arguments: object) -> Any:
        (row,) = await self.connection.fetch("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, *arguments)
        self.read += _rows_read(json.loads(row[0])[0]["Plan"])
        return await self.connection.fetch(sql, *arguments)

    async def fetchrow(self, sql: str, *arguments: object) -> Any:
        rows = await self.fetch(sql, *arguments)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *arguments: object) -> Any:
        row = await self.fetchrow(sql, *arguments)
        return None if row is None else row[0]


def _rows_read(plan: dict[str, Any]) -> float:
    own = 0.0
    if "Scan" in plan["Node Type"]:
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return own + sum(map(_rows_read, plan.get("Plans", [])))
