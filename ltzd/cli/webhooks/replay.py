"""`ltzd webhooks replay` and `enable`: what was given up, or waits, is sent again."""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from ltzd.cli.brand.lookup import find_brand, named
from ltzd.cli.output import tell
from ltzd.cli.targets import Place, connected
from ltzd.errors import NotFound, Refused
from ltzd.store.database import Connection
from ltzd.store.webhooks import records as webhook_records
from ltzd.store.webhooks.queue import State
from ltzd.values import iso

_ID = re.compile(r"msg_[0-9a-f]{32}")


def replay(
    place: Place,
    ids: Sequence[str],
    brand: str | None,
    since: str | None,
    state: State | None,
) -> None:
    if ids and (brand, since, state) == (None, None, None):
        asyncio.run(_replay(place, list(dict.fromkeys(map(_id_in, ids)))))
    elif not ids and brand is not None and since is not None:
        asyncio.run(_replay_since(place, brand, _time_in(since), state))
    else:
        raise Refused("Give either the webhooks' ids, or --brand and --since.")


def enable(place: Place, brand: str) -> None:
    asyncio.run(_enable(place, brand))


async def _replay(place: Place, ids: Sequence[UUID]) -> None:
    async with connected(place, "webhooks replay") as connection, connection.transaction():
        await _refuse_others(connection, ids)
        count = len(await webhook_records.replay(connection, ids))
    tell(_sentence(count))


async def _refuse_others(connection: Connection, ids: Sequence[UUID]) -> None:
    """All of them or none."""
    found = {one.id: one for one in await webhook_records.called(connection, ids)}
    for each in ids:
        if each not in found:
            raise NotFound(f"There is no webhook msg_{each.hex}. Nothing changed.")
        if not found[each].may_be_replayed:
            raise Refused(
                f"Webhook msg_{each.hex} was taken back: if its reward is minted after all, "
                "another one says so. Nothing changed."
            )


async def _replay_since(place: Place, text: str, since: datetime, state: State | None) -> None:
    async with connected(place, "webhooks replay") as connection, connection.transaction():
        brand = await find_brand(connection, text)
        count = await webhook_records.replay_since(connection, brand.id, since, state)
    tell(f"Since {iso(since)}: {_sentence(count)}")


async def _enable(place: Place, text: str) -> None:
    async with connected(place, "webhooks enable") as connection:
        brand = await find_brand(connection, text)
        count = await webhook_records.enable(connection, brand.id)
    if count is None:
        raise Refused(f"The endpoint of {named(brand)} is not disabled. Nothing changed.")
    tell(f"The endpoint of {named(brand)} is open again. {_sentence(count)}")
    tell("What was given up before is sent again only by `ltzd webhooks replay`.")


def _sentence(count: int) -> str:
    return f"{count} {'webhook is' if count == 1 else 'webhooks are'} due now."


def _id_in(text: str) -> UUID:
    if not _ID.fullmatch(text):
        raise NotFound(f"{text!r} is no webhook's id: those begin with msg_, as they are listed.")
    return UUID(text.removeprefix("msg_"))


def _time_in(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"--since {text!r} is no time, such as 2025-01-31T12:00:00Z.") from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
