"""`ltzd webhooks list`, for people or as JSON; it shows no body, so nobody's e-mail address."""

import asyncio
from collections.abc import Sequence
from typing import Any

from rich.table import Column, Table

from ltzd.cli.brand.lookup import find_brand
from ltzd.cli.output import plain_text, print_json, print_message, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.store.webhooks import records as webhook_records
from ltzd.store.webhooks.queue import WebhookState
from ltzd.store.webhooks.records import DisabledEndpoint, WebhookRecord
from ltzd.values import hex_of, iso

Found = tuple[list[WebhookRecord], list[DisabledEndpoint]]


def list_webhooks(
    target: Target, brand: str | None, state: WebhookState | None, limit: int, *, as_json: bool
) -> None:
    webhooks, disabled = asyncio.run(_read(target, brand, state, limit))
    if as_json:
        print_json(
            {
                "webhooks": list(map(_whole, webhooks)),
                "disabledEndpoints": list(map(_endpoint, disabled)),
            }
        )
        return
    for one in disabled:
        print_message(
            f"The endpoint of brand {hex_of(one.brand_id)} is disabled since "
            f"{iso(one.disabled_at)}: {one.reason}. `ltzd webhooks enable` ends that."
        )
    if webhooks:
        print_page(_table(webhooks))
    else:
        print_message("There is no such webhook.")


async def _read(target: Target, brand: str | None, state: WebhookState | None, limit: int) -> Found:
    async with open_connection(target, "webhooks list") as connection:
        id_ = None if brand is None else (await find_brand(connection, brand)).id
        return (
            await webhook_records.list_webhooks(connection, id_, state, limit),
            await webhook_records.disabled_endpoints(connection, id_),
        )


def _whole(one: WebhookRecord) -> dict[str, Any]:
    return {
        "id": one.name,
        "brandId": hex_of(one.brand_id),
        "kind": one.kind,
        "subject": str(one.subject),
        "state": one.state,
        "revoked": one.revoked,
        "attempts": one.attempts,
        "nextAt": iso(one.next_at) if one.state == "pending" else None,
        "lastStatus": one.last_status,
        "lastError": one.last_error,
        "createdAt": iso(one.created_at),
        "deliveredAt": one.delivered_at and iso(one.delivered_at),
    }


def _endpoint(one: DisabledEndpoint) -> dict[str, Any]:
    return {
        "brandId": hex_of(one.brand_id),
        "disabledAt": iso(one.disabled_at),
        "reason": one.reason,
    }


def _table(webhooks: Sequence[WebhookRecord]) -> Table:
    table = Table(
        Column("id", no_wrap=True),
        Column("brand", no_wrap=True),
        "kind",
        Column("subject", no_wrap=True),
        "state",
        Column("attempts", justify="right"),
        "written",
        Column("what became of it", overflow="fold"),
        box=None,
        padding=(0, 2, 0, 0),
    )
    for one in webhooks:
        table.add_row(
            one.name,
            hex_of(one.brand_id),
            one.kind,
            str(one.subject),
            one.state,
            str(one.attempts),
            iso(one.created_at),
            plain_text(_fate(one)),
        )
    return table


def _fate(one: WebhookRecord) -> str:
    said = [] if one.last_error is None else [one.last_error]
    if one.revoked and one.kind == "ltz_distributed":
        said.append("taken back")
    if one.state == "pending":
        said.append(f"next at {iso(one.next_at)}")
    elif one.delivered_at is not None:
        said.append(f"status {one.last_status} at {iso(one.delivered_at)}")
    return ", ".join(said)
