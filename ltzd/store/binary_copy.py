"""PostgreSQL's binary COPY, with rows made by hand.

A row is hexadecimal text until all rows of a batch are turned into bytes at once, which costs a
third of encoding each value. asyncpg's own encoders are the oracle in the tests.
"""

from collections.abc import AsyncIterator, Iterable
from functools import lru_cache
from typing import Final

from ltzd.store.database import Connection

_HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_ZERO: Final = "00000008" + "0" * 16


class _Digits(dict[str, str]):
    """PostgreSQL's numeric has digits of base 10,000, each in hexadecimal once it has occurred."""

    def __missing__(self, decimal: str) -> str:
        digit = self[decimal] = f"{int(decimal):04x}"
        return digit


_DIGITS: Final = _Digits()


@lru_cache(maxsize=4096)
def numeric_hex(amount: int) -> str:
    """A numeric without decimals, with its length before it, as hexadecimal text.

    `amount` is not negative. Rewards have few different amounts, so that most are remembered.
    """
    if not amount:
        return _ZERO
    text = str(amount)
    text = text.zfill(-(-len(text) // 4) * 4)
    groups = [_DIGITS[text[at : at + 4]] for at in range(0, len(text), 4)]
    weight = len(groups) - 1
    while groups[-1] == "0000":
        groups.pop()
    count = len(groups)
    return f"{8 + 2 * count:08x}{count:04x}{weight:04x}00000000{''.join(groups)}"


async def copy_rows(
    connection: Connection, table: str, columns: Iterable[str], rows: Iterable[bytes]
) -> None:
    """Copy rows into a table. Each piece of `rows` holds whole rows in PostgreSQL's binary form."""

    async def source() -> AsyncIterator[bytes]:
        yield _HEADER
        for piece in rows:
            yield piece
        yield _TRAILER

    await connection.copy_to_table(table, source=source(), columns=list(columns), format="binary")
