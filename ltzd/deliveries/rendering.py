"""Claimed webhooks made ready to post: with the body, and the secrets that sign it.

What cannot be posted now is put off in the same database transaction, as if it had never been
claimed: a reward that a reorg has just unminted, or a brand whose secret does not open.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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

_PUT_OFF_FOR = timedelta(seconds=10)
_BRANDS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class SignedWebhook:
    due: DueWebhook
    message: WebhookMessage
    secrets: Sequence[str] = field(repr=False)


class WebhookRenderer:
    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._secrets: LRUCache[Address, tuple[int, list[BrandSecret]]] = LRUCache(_BRANDS_KEPT)
        """With the brand's revision, which every rotation moves."""

    async def written(
        self, connection: Connection, claimed: Sequence[DueWebhook], now: datetime
    ) -> list[SignedWebhook]:
        bodies = await webhook_bodies.render(connection, claimed)
        letters = []
        for due in claimed:
            secrets = await self._secrets_of(connection, due, now) if due.id in bodies else ()
            if secrets:
                letters.append(
                    SignedWebhook(due, WebhookMessage(due.id, due.url, bodies[due.id]), secrets)
                )
        ready = {letter.due.id for letter in letters}
        if others := [due.id for due in claimed if due.id not in ready]:
            await webhooks.defer(connection, others, now + _PUT_OFF_FOR)
        return letters

    async def _secrets_of(
        self, connection: Connection, due: DueWebhook, now: datetime
    ) -> list[str]:
        """The newest first; none if the master key file does not open it."""
        kept = self._secrets.get(due.brand_id)
        if kept is None or kept[0] != due.revision:
            kept = due.revision, await self._read(connection, due.brand_id)
            self._secrets[due.brand_id] = kept
        return [one.text for one in kept[1] if one.until is None or now < one.until]

    async def _read(self, connection: Connection, brand: Address) -> list[BrandSecret]:
        try:
            return await brand_keys.secrets_of(connection, brand, "webhook_secret", self._sealer)
        except Misconfigured as error:
            log.error("webhooks.secret_not_opened", brand=hex_of(brand), advice=error.message)
            return []
