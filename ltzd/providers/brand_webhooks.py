"""The one client of brands' webhook endpoints: signs by Standard Webhooks, and posts.

Connections are kept open for the next webhooks of a burst. Only the head of an answer is read: a
long or endless body changes nothing.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from ltzd import telemetry
from ltzd.providers.outbound.guarded_connector import HostResolver
from ltzd.providers.outbound.guarded_http import GuardedHttpClient, GuardPolicy
from ltzd.providers.outbound.http_client import AsyncCloseable, HttpResponse

MAX_IN_FLIGHT = 1_000
TIMEOUT_SECONDS = 20.0
_KEEP_OPEN_SECONDS = 10.0
_SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of every secret


def guard_policy(*, allow_loopback: bool = False) -> GuardPolicy:
    """Set no lower bound for one host: many brands may share it. A slow name or host delays only
    its own brands."""
    return GuardPolicy(
        allow_loopback=allow_loopback,
        timeout_seconds=TIMEOUT_SECONDS,
        max_per_host=MAX_IN_FLIGHT,
        max_waiting=MAX_IN_FLIGHT,
        keep_open_seconds=_KEEP_OPEN_SECONDS,
    )


class WebhookMessage(msgspec.Struct, frozen=True):
    """`id` is the same in every attempt."""

    id: UUID
    url: str
    body: bytes


class BrandWebhooks(AsyncCloseable):
    """`resolve` replaces the machine's resolver."""

    def __init__(self, policy: GuardPolicy, resolve: HostResolver | None = None) -> None:
        self._http = GuardedHttpClient(policy, resolve)

    async def close(self) -> None:
        await self._http.close()

    async def post(
        self, message: WebhookMessage, secrets: Sequence[str], at: datetime
    ) -> HttpResponse:
        """Return the answer's status and headers, whatever the status. Raises RequestFailed."""
        headers = {"Content-Type": "application/json", **signed_headers(message, secrets, at)}
        with telemetry.timed_provider("brand_webhooks"):
            return await self._http.post_for_head(message.url, body=message.body, headers=headers)


def signed_headers(message: WebhookMessage, secrets: Sequence[str], at: datetime) -> dict[str, str]:
    """One signature by each secret, so that a receiver can change to a new secret at any time."""
    message_id, timestamp = f"msg_{message.id.hex}", str(int(at.timestamp()))
    signed = f"{message_id}.{timestamp}.".encode() + message.body
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{_signature(secret, signed)}" for secret in secrets),
    }


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
