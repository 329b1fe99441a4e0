"""`ltzd webhooks replay` and `ltzd webhooks enable`: send webhooks again."""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from ltzd.cli.brand.lookup import describe_brand, find_brand
from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.times import parse_moment
from ltzd.errors import NotFound, Refused
from ltzd.store.database import Connection
from ltzd.store.webhooks import records as webhook_records
from ltzd.store.webhooks.queue import WebhookState
from ltzd.values import hex_of, iso

_ID = re.compile(r"msg_[0-9a-f]{32}")


def replay(
    target: Target,
    ids: Sequence[str],
    brand: str | None,
    since: str | None,
    state: WebhookState | None,
    *,
    as_json: bool,
) -> None:
    """Print how many webhooks are due now. Raises Refused and NotFound."""
    prefix = ""
    if ids and (brand, since, state) == (None, None, None):
        count = asyncio.run(_replay(target, list(dict.fromkeys(map(_parse_id, ids)))))
    elif not ids and brand is not None and since is not None:
        at = parse_moment("--since", since, datetime.now(UTC))
        count = asyncio.run(_replay_since(target, brand, at, state))
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
    target: Target, text: str, since: datetime, state: WebhookState | None
) -> int:
    async with open_connection(target, "webhooks replay") as connection, connection.transaction():
        brand = await find_brand(connection, text)
        return await webhook_records.replay_since(connection, brand.id, since, state)


async def _enable(target: Target, text: str, *, as_json: bool) -> None:
    async with open_connection(target, "webhooks enable") as connection:
        brand = await find_brand(connection, text)
        count = await webhook_records.enable(connection, brand.id)
    if count is None:
        raise Refused(f"{describe_brand(brand)} has no disabled endpoint. Nothing changed.")
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
