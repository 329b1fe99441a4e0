"""`ltzd books --statement`: writes a brand's statement as CSV and prints its sum."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

from ltzd.cli.books.views import dollars
from ltzd.cli.brand.lookup import find_brand
from ltzd.cli.csv_output import CsvFile
from ltzd.cli.output import print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import Refused
from ltzd.store.books import figures as books
from ltzd.store.books import statements
from ltzd.store.books.figures import Period
from ltzd.store.books.statements import StatementLine
from ltzd.values import checksummed, hex_of, iso

HEADER = (
    *("time", "kind", "id", "event_type", "user_id", "wallet", "ltz", "usd", "state"),
    *("transaction_hash", "block"),
)


def period_of(since: datetime | None, until: datetime | None) -> Period:
    """Days of UTC; `until` is exclusive. Raises Refused if the period has no day."""
    if since is not None and until is not None and since >= until:
        raise Refused("--to must be a later day than --from: it is the first day not to count.")
    return Period(since and since.replace(tzinfo=UTC), until and until.replace(tzinfo=UTC))


def write(target: Target, brand: str, period: Period, file: str) -> None:
    count, ltz = asyncio.run(_write(target, brand, period, file))
    print_message(f"{count:,} {'row' if count == 1 else 'rows'}, {ltz:,} LTZ.")


async def _write(target: Target, brand: str, period: Period, file: str) -> tuple[int, int]:
    """Return the number of rows and the sum of their LTZ."""
    count = ltz = 0
    async with open_connection(target, "books") as connection, books.snapshot(connection):
        record = await find_brand(connection, brand)
        with CsvFile(file) as sheet:
            sheet.add(HEADER)
            async for line in statements.read_lines(connection, record.id, period):
                sheet.add(_cells(line))
                count, ltz = count + 1, ltz + line.ltz
    return count, ltz


def _cells(line: StatementLine) -> Iterator[object]:
    yield iso(line.at)
    yield line.kind
    yield line.id
    yield line.event_type
    yield line.user_id
    yield line.wallet and checksummed(line.wallet)
    yield line.ltz
    yield None if line.usd_cents is None else dollars(line.usd_cents)
    yield line.state
    yield line.transaction_hash and hex_of(line.transaction_hash)
    yield line.block_number
