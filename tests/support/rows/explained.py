"""A connection that counts what its statements read."""

import json
from dataclasses import dataclass
from typing import Any

from ltzd.store.database import Connection


@dataclass
class Explained:
    """Runs each statement under EXPLAIN ANALYZE, too, which plans with its arguments.

    `read` counts the rows of queries and `changing_read` those of `execute`; both include rows that
    a filter removed.
    """

    connection: Connection
    read: float = 0.0
    changing_read: float = 0.0

    async def fetch(self, sql: str, *arguments: object, timeout: float | None = None) -> Any:
        self.read += _rows_read(await self._explain(sql, *arguments))
        return await self.connection.fetch(sql, *arguments, timeout=timeout)

    async def execute(self, sql: str, *arguments: object) -> Any:
        block = self.connection.transaction()
        await block.start()
        self.changing_read += _rows_read(await self._explain(sql, *arguments))
        await block.rollback()
        return await self.connection.execute(sql, *arguments)

    async def _explain(self, sql: str, *arguments: object) -> dict[str, Any]:
        (row,) = await self.connection.fetch("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, *arguments)
        plan: dict[str, Any] = json.loads(row[0])[0]["Plan"]
        return plan

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
