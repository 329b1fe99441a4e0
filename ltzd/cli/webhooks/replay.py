"""`ltzd webhooks replay` and `ltzd webhooks enable`: send webhooks again.

All of a brand's webhooks are made due in batches, each a database transaction of its own. A replay
that ends early tells where to go on (`--after`). An endpoint is enabled after its webhooks are due,
so `enable` is simply repeated.
"""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from msgspec.structs import astuple

from ltzd.cli.brand.lookup import describe_brand, find_brand
from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.times import parse_moment
from ltzd.errors import NotFound, Refused
from ltzd.store.database import Connection
from ltzd.store.webhooks import records as webhook_records
from ltzd.store.webhooks.queue import WebhookState
from ltzd.store.webhooks.records import Position
from ltzd.values import Address, hex_of, iso

_ID = re.compile(r"msg_[0-9a-f]{32}")
_FIRST = Position(datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))
_CONTINUE = "If this command ends early, repeat it with --after {last}"
_REPEAT = "If this command ends early, repeat it: the endpoint is still disabled."


def replay(
    target: Target,
    ids: Sequence[str],
    brand: str | None,
    since: str | None,
    state: WebhookState | None,
    after: str | None,
    *,
    as_json: bool,
) -> None:
    """Print how many webhooks are due now. Raises Refused and NotFound."""
    prefix = ""
    if ids and (brand, since, state, after) == (None, None, None, None):
        count = asyncio.run(_replay(target, list(dict.fromkeys(map(_parse_id, ids)))))
    elif not ids and brand is not None and since is not None:
        at = parse_moment("--since", since, datetime.now(UTC))
        last = None if after is None else _parse_id(after)
        count = asyncio.run(_replay_since(target, brand, at, state, last))
        prefix = f"Since {iso(at)}: "
    else:
        raise Refused("Give either the webhooks' ids, or --brand and --since.")
    if as_json:
        print_json({"due": count})
    else:
        print_message(prefix + _due_message(count))


def enable(target: Target, brand: str, *, as_json: bool) -> None:
    asyncio.run(_enable(target, brand, as_json=as_json))


async def _replay(target: Target, ids: Sequence[UUID]) -> int:
    async with open_connection(target, "webhooks replay") as connection, connection.transaction():
        await _require_replayable(connection, ids)
        return len(await webhook_records.replay(connection, ids))


async def _require_replayable(connection: Connection, ids: Sequence[UUID]) -> None:
    """Raise NotFound or Refused for the first id that cannot be replayed."""
    records = {record.id: record for record in await webhook_records.lock_by_id(connection, ids)}
    for each in ids:
        if each not in records:
            raise NotFound(f"There is no webhook msg_{each.hex}. Nothing changed.")
        if not records[each].may_be_replayed:
            raise Refused(
                f"Webhook msg_{each.hex} was revoked: if its reward is minted again, "
                "another webhook reports it. Nothing changed."
            )


async def _replay_since(
    target: Target, text: str, since: datetime, state: WebhookState | None, last: UUID | None
) -> int:
    async with open_connection(target, "webhooks replay") as connection:
        brand = await find_brand(connection, text)
        behind = Position(since, UUID(int=0))
        if last is not None:
            reached = await webhook_records.position_of(connection, brand.id, last)
            if reached is None:
                raise NotFound(
                    f"{describe_brand(brand)} has no webhook msg_{last.hex}. Nothing changed."
                )
            behind = max(behind, reached, key=astuple)
        return await _replay_behind(connection, brand.id, behind, state, _CONTINUE)


async def _replay_behind(
    connection: Connection,
    brand: Address,
    behind: Position,
    state: WebhookState | None,
    if_interrupted: str,
) -> int:
    """Make a brand's webhooks due, and report after each batch how to go on behind it."""
    until, count = await webhook_records.present_moment(connection), 0
    while True:
        batch = await webhook_records.replay_next(connection, brand, behind, until, state)
        count += batch.count
        if batch.reached is None:
            return count
        behind = batch.reached
        last = f"msg_{behind.id.hex}"
        print_message(f"{count} webhooks so far. {if_interrupted.format(last=last)}")


async def _enable(target: Target, text: str, *, as_json: bool) -> None:
    async with open_connection(target, "webhooks enable") as connection:
        brand = await find_brand(connection, text)
        if not await webhook_records.is_disabled(connection, brand.id):
            raise Refused(f"{describe_brand(brand)} has no disabled endpoint. Nothing changed.")
        count = await _replay_behind(connection, brand.id, _FIRST, "pending", _REPEAT)
        await webhook_records.enable(connection, brand.id)
    if as_json:
        print_json({"brandId": hex_of(brand.id), "due": count})
        return
    print_message(f"{describe_brand(brand)} gets webhooks again. {_due_message(count)}")
    print_message("Exhausted webhooks are sent again only by `ltzd webhooks replay`.")


def _due_message(count: int) -> str:
    return f"{count} {'webhook is' if count == 1 else 'webhooks are'} due now."


def _parse_id(text: str) -> UUID:
    if not _ID.fullmatch(text):
        raise NotFound(
            f"{text!r} is not a webhook id. `ltzd webhooks list` shows the ids, such as msg_…."
        )
    return UUID(text.removeprefix("msg_"))
