"""`ltzd webhooks list`, as a table or as JSON; no bodies, because they hold e-mail addresses."""

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

WebhookList = tuple[list[WebhookRecord], list[DisabledEndpoint]]


def list_webhooks(
    target: Target, brand: str | None, state: WebhookState | None, limit: int, *, as_json: bool
) -> None:
    webhooks, disabled = asyncio.run(_read(target, brand, state, limit))
    if as_json:
        print_json(
            {
                "webhooks": list(map(_as_json, webhooks)),
                "disabledEndpoints": list(map(_endpoint, disabled)),
            }
        )
        return
    for endpoint in disabled:
        print_message(
            f"The endpoint of brand {hex_of(endpoint.brand_id)} has been disabled since "
            f"{iso(endpoint.disabled_at)}: {endpoint.reason}. "
            f"`ltzd webhooks enable {hex_of(endpoint.brand_id)}` enables it."
        )
    if webhooks:
        print_page(_table(webhooks))
    else:
        print_message("No webhook matches.")


async def _read(
    target: Target, brand: str | None, state: WebhookState | None, limit: int
) -> WebhookList:
    async with open_connection(target, "webhooks list") as connection:
        id_ = None if brand is None else (await find_brand(connection, brand)).id
        return (
            await webhook_records.list_webhooks(connection, id_, state, limit),
            await webhook_records.disabled_endpoints(connection, id_),
        )


def _as_json(webhook: WebhookRecord) -> dict[str, Any]:
    return {
        "id": webhook.name,
        "brandId": hex_of(webhook.brand_id),
        "kind": webhook.kind,
        "subject": str(webhook.subject),
        "state": webhook.state,
        "revoked": webhook.revoked,
        "attempts": webhook.attempts,
        "nextAt": iso(webhook.next_at) if webhook.state == "pending" else None,
        "lastStatus": webhook.last_status,
        "lastError": webhook.last_error,
        "createdAt": iso(webhook.created_at),
        "deliveredAt": webhook.delivered_at and iso(webhook.delivered_at),
    }


def _endpoint(endpoint: DisabledEndpoint) -> dict[str, Any]:
    return {
        "brandId": hex_of(endpoint.brand_id),
        "disabledAt": iso(endpoint.disabled_at),
        "reason": endpoint.reason,
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
        Column("outcome", overflow="fold"),
        box=None,
        padding=(0, 2, 0, 0),
    )
    for webhook in webhooks:
        table.add_row(
            webhook.name,
            hex_of(webhook.brand_id),
            webhook.kind,
            str(webhook.subject),
            webhook.state,
            str(webhook.attempts),
            iso(webhook.created_at),
            plain_text(_outcome(webhook)),
        )
    return table


def _outcome(webhook: WebhookRecord) -> str:
    parts = [] if webhook.last_error is None else [webhook.last_error]
    if webhook.revoked and webhook.kind == "ltz_distributed":
        parts.append("revoked")
    if webhook.state == "pending":
        parts.append(f"next at {iso(webhook.next_at)}")
    elif webhook.delivered_at is not None:
        parts.append(f"status {webhook.last_status} at {iso(webhook.delivered_at)}")
    return ", ".join(parts)
