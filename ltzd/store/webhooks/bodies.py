"""The bodies of webhooks, rendered from the facts as they are now."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from ltzd.rules.amounts import ltz_of
from ltzd.store.database import Connection
from ltzd.store.users.erased_addresses import shown_address
from ltzd.store.webhooks.queue import DueWebhook, WebhookKind
from ltzd.values import checksummed, hex_of

_JSON = msgspec.json.Encoder(decimal_format="number")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Body = dict[str, Any]


async def render(connection: Connection, webhooks: Sequence[DueWebhook]) -> dict[UUID, bytes]:
    """Bodies by the webhook's id; a webhook whose fact does not hold at this moment is missing."""
    facts: dict[UUID, asyncpg.Record] = {}
    for kinds, query in _FACTS.items():
        ids = [webhook.subject for webhook in webhooks if webhook.kind in kinds]
        if ids:
            facts |= {row["id"]: row for row in await connection.fetch(query, ids)}
    bodies = {
        webhook.id: _body(webhook, facts[webhook.subject])
        for webhook in webhooks
        if webhook.subject in facts
    }
    return {key: _JSON.encode(body) for key, body in bodies.items() if body is not None}


def _body(due: DueWebhook, fact: asyncpg.Record) -> Body | None:
    match due.kind:
        case "ltz_distributed":
            return _distributed(due, fact) if fact["mint_transaction_hash"] is not None else None
        case "ltz_reverted":
            return _distributed(due, fact) | {"reason": fact["failure"]}
        case "payment_reversed":
            return _payment_reversed(due, fact)
        case "redemption_reversed":
            return _redemption_reversed(due, fact)


def _distributed(due: DueWebhook, reward: asyncpg.Record) -> Body:
    """Spec 6."""
    return {
        "event": due.kind,
        "brandId": hex_of(due.brand_id),
        "userId": str(reward["user_id"]),
        "email": shown_address(reward["email"]),
        "walletAddress": checksummed(reward["wallet"]),
        "ltzAmount": reward["ltz"],
        "transactionHash": None if due.transaction_hash is None else hex_of(due.transaction_hash),
        "timestamp": _milliseconds(due.created_at),
    }


def _payment_reversed(due: DueWebhook, reversal: asyncpg.Record) -> Body:
    return {
        "event": due.kind,
        "brandId": hex_of(due.brand_id),
        "reversalId": str(due.subject),
        "kind": reversal["kind"],
        "sessionId": reversal["session_id"],
        "paymentIntentId": reversal["payment_intent_id"],
        "walletAddress": checksummed(reversal["wallet"]),
        "usdAmount": _dollars(reversal["usd_cents"]),
        "ltzAmount": reversal["ltz"],
        "reversedUsdAmount": _dollars(reversal["reversed_usd_cents"]),
        "reason": reversal["reason"],
        "timestamp": _milliseconds(due.created_at),
    }


def _redemption_reversed(due: DueWebhook, redemption: asyncpg.Record) -> Body:
    return {
        "event": due.kind,
        "brandId": hex_of(due.brand_id),
        "redemptionId": str(due.subject),
        "confirmationCode": redemption["confirmation_code"],
        "perkId": str(redemption["perk_id"]),
        "perkName": redemption["name"],
        "walletAddress": checksummed(redemption["wallet"]),
        "ltzAmount": ltz_of(int(redemption["price"])),
        "transactionHash": None if due.transaction_hash is None else hex_of(due.transaction_hash),
        "timestamp": _milliseconds(due.created_at),
    }


def _dollars(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)


def _milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


_FACTS: dict[frozenset[WebhookKind], str] = {
    # The user of a reward is the event's, or else that of the member who earned the reward at the
    # brand's site: the brand is told no other address of a person. A reward of an earlier version
    # names no member: its user is the wallet's, or else that of a member with the wallet.
    frozenset(("ltz_distributed", "ltz_reverted")): """
    SELECT r.id, r.wallet, r.ltz, r.mint_transaction_hash, r.failure,
           coalesce(e.user_id, earner.user_id, u.id, m.user_id) AS user_id,
           coalesce(e.email, earner.email_key, u.email_key, m.email_key) AS email
      FROM unnest($1::uuid[]) AS asked (id)
      JOIN rewards r ON r.id = asked.id
      LEFT JOIN events e ON e.id = r.id
      LEFT JOIN LATERAL (
           SELECT member.user_id, member.email_key
             FROM (SELECT host, site_user_id FROM check_ins WHERE reward_id = r.id
                    UNION ALL
                   SELECT host, site_user_id FROM milestone_claims WHERE reward_id = r.id)
                  AS claim
             JOIN site_members member
               ON member.brand_id = r.brand_id AND member.host = claim.host
              AND member.site_user_id = claim.site_user_id
            WHERE e.id IS NULL) AS earner ON true
      LEFT JOIN LATERAL (
           SELECT id, email_key
             FROM wallet_users
            WHERE wallet = r.wallet AND e.id IS NULL AND earner.user_id IS NULL
            ORDER BY created_at
            LIMIT 1) AS u ON true
      LEFT JOIN LATERAL (
           SELECT user_id, email_key
             FROM site_members
            WHERE brand_id = r.brand_id AND wallet = r.wallet
              AND e.id IS NULL AND earner.user_id IS NULL AND u.id IS NULL
            -- The member with the wallet's e-mail address, then a linked member.
            ORDER BY linked_at NULLS FIRST, host, site_user_id
            LIMIT 1) AS m ON true
     WHERE coalesce(e.user_id, earner.user_id, u.id, m.user_id) IS NOT NULL
    """,
    frozenset(("payment_reversed",)): """
    SELECT v.id, v.kind, v.session_id, v.payment_intent_id, v.reason,
           v.usd_cents AS reversed_usd_cents, p.wallet, p.usd_cents, p.ltz
      FROM unnest($1::uuid[]) AS asked (id)
      JOIN payment_reversals v ON v.id = asked.id
      JOIN payments p ON p.session_id = v.session_id
    """,
    frozenset(("redemption_reversed",)): """
    SELECT id, wallet, perk_id, name, price, confirmation_code
      FROM site_redemptions
     WHERE id = ANY($1::uuid[]) AND state = 'reversed'
    """,
}
"""The query of each kind's facts, by their ids."""
