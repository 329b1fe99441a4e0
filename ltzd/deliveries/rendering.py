"""Turns claimed webhooks into requests: renders the body and reads the secrets that sign it.

A webhook that cannot be posted now is deferred in the same database transaction, as if it had never
been claimed: its reward was just unminted by a reorg, or its brand's secret does not open.
A deferred webhook waits the longer the older it is, so that a great many of them do not keep the
sender and the database at work without a pause.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
import structlog
from cachetools import LRUCache

from ltzd.errors import Misconfigured
from ltzd.providers.brand_webhooks import WebhookMessage
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.keys import BrandSecret
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.webhooks import bodies as webhook_bodies
from ltzd.store.webhooks import queue as webhooks
from ltzd.store.webhooks.queue import DueWebhook
from ltzd.values import Address, hex_of

log = structlog.get_logger()

SHORTEST_DEFERRAL = timedelta(seconds=10)
LONGEST_DEFERRAL = timedelta(minutes=10)
_SHARE_OF_AGE = 0.1
_MAX_CACHED_BRANDS = 10_000


@dataclass(frozen=True, slots=True)
class SignedWebhook:
    """A webhook with its body and the secrets to sign it with."""

    due: DueWebhook
    message: WebhookMessage
    secrets: Sequence[str] = field(repr=False)


class RenderedWebhooks(msgspec.Struct, frozen=True):
    """`without_secret` has the brands whose secret does not open: none of theirs can be sent."""

    signed: Sequence[SignedWebhook]
    without_secret: frozenset[Address]


class WebhookRenderer:
    """Renders claimed webhooks, with a cache of the brands' secrets."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._secrets: LRUCache[Address, tuple[int, list[BrandSecret]]] = LRUCache(
            _MAX_CACHED_BRANDS
        )
        """With the brand's revision, which every rotation raises."""

    async def render(
        self, connection: Connection, claimed: Sequence[DueWebhook], now: datetime
    ) -> RenderedWebhooks:
        bodies = await webhook_bodies.render(connection, claimed)
        signed, without_secret = [], set()
        deferred: dict[UUID, datetime] = {}
        for due in claimed:
            secrets = await self._secrets_of(connection, due, now)
            if not secrets:
                without_secret.add(due.brand_id)
            if secrets and due.id in bodies:
                signed.append(
                    SignedWebhook(due, WebhookMessage(due.id, due.url, bodies[due.id]), secrets)
                )
            else:
                deferred[due.id] = now + _deferral(due, now)
        if deferred:
            await webhooks.defer(connection, deferred)
        return RenderedWebhooks(signed, frozenset(without_secret))

    async def _secrets_of(
        self, connection: Connection, due: DueWebhook, now: datetime
    ) -> list[str]:
        """The newest first; empty if the master key file does not open them."""
        cached = self._secrets.get(due.brand_id)
        if cached is None or cached[0] != due.revision:
            cached = due.revision, await self._read(connection, due.brand_id)
            self._secrets[due.brand_id] = cached
        return [secret.text for secret in cached[1] if secret.until is None or now < secret.until]

    async def _read(self, connection: Connection, brand: Address) -> list[BrandSecret]:
        try:
            return await brand_keys.secrets_of(connection, brand, "webhook_secret", self._sealer)
        except Misconfigured as error:
            log.error("webhooks.secret_not_opened", brand=hex_of(brand), advice=error.message)
            return []


def _deferral(due: DueWebhook, now: datetime) -> timedelta:
    wanted = (now - due.created_at) * _SHARE_OF_AGE
    return min(max(wanted, SHORTEST_DEFERRAL), LONGEST_DEFERRAL)
