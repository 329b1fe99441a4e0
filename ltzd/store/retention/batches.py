"""Deletes of any number of rows, a few thousand in each statement.

A single statement over all expired rows would time out once too many have gathered, for example
while no process had the role `deliveries`, and no later one would ever finish.
"""

from typing import Final

from ltzd.store.database import Connection

ROWS: Final = 5_000
"""The rows of one statement, which takes about a tenth of a second."""


async def run(connection: Connection, statement: str, *arguments: object) -> None:
    """Repeat a statement, which changes up to $1 rows, until it finds fewer; `arguments` follow.

    The statement should pass over locked rows: another process may be changing them.
    """
    while True:
        status: str = await connection.execute(statement, ROWS, *arguments)
        if int(status.rpartition(" ")[2]) < ROWS:
            return
