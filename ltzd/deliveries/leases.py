"""The leases of the webhooks that this process has claimed and whose outcomes are not written.

A lease is shorter than an attempt may take, and is renewed while the attempt is under way. After a
kill a webhook thus waits for the end of a short lease, however slowly its endpoint may answer.
"""

from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final
from uuid import UUID

import msgspec

from ltzd.store.webhooks.queue import DueWebhook

LEASE: Final = timedelta(seconds=8)
"""How long a claimed webhook waits at most after its process was killed."""
RENEWAL_AGE: Final = timedelta(seconds=2)
"""Most attempts end sooner and cost no renewal. A renewal that fails is repeated in time."""


class _Lease(msgspec.Struct, frozen=True):
    webhook: DueWebhook
    renewable_at: datetime


class WebhookLeases:
    def __init__(self) -> None:
        self._held: dict[UUID, _Lease] = {}
        """The lease that is to be renewed first comes first."""

    def begin(self, webhook: DueWebhook, now: datetime) -> None:
        self._held.pop(webhook.id, None)
        self._held[webhook.id] = _Lease(webhook, now + RENEWAL_AGE)

    def end(self, webhook_id: UUID) -> None:
        self._held.pop(webhook_id, None)

    def take_renewable(self, now: datetime) -> list[DueWebhook]:
        """Webhooks to renew now. Each is returned again after RENEWAL_AGE until its lease ends."""
        renewable = [
            lease.webhook
            for lease in takewhile(lambda lease: lease.renewable_at <= now, self._held.values())
        ]
        for webhook in renewable:
            self.begin(webhook, now)
        return renewable
