"""The one client of brands' webhook endpoints: signs as Standard Webhooks says, and posts once.

Of an answer only the head counts: a long body, or one that never ends, changes nothing.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ltzd import telemetry
from ltzd.providers.outbound.guarded_connector import HostResolver
from ltzd.providers.outbound.guarded_http import Answer, GuardedHttpClient, GuardPolicy

MAX_IN_FLIGHT = 1_000
TIMEOUT_SECONDS = 20.0
_SECRET_PREFIX = "whsec_"  # noqa: S105 - what every secret begins with


def guard_policy(*, allow_loopback: bool = False) -> GuardPolicy:
    """Many brands may have one host, so none is bounded for all of them; slow names and slow hosts
    hold up their own brand."""
    return GuardPolicy(
        allow_loopback=allow_loopback,
        timeout_seconds=TIMEOUT_SECONDS,
        max_per_host=MAX_IN_FLIGHT,
        max_waiting=MAX_IN_FLIGHT,
        look_up_threads=64,
    )


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """`id` is the same in every attempt."""

    id: UUID
    url: str
    body: bytes


class BrandWebhooks:
    def __init__(self, policy: GuardPolicy, look_up: HostResolver | None = None) -> None:
        self._http = GuardedHttpClient(policy, look_up)

    async def close(self) -> None:
        await self._http.close()

    async def post(self, message: WebhookMessage, secrets: Sequence[str], at: datetime) -> Answer:
        """The head of the answer, whatever its status. Raises RequestFailed."""
        headers = {"Content-Type": "application/json", **signed_headers(message, secrets, at)}
        with telemetry.timed_provider("brand_webhooks"):
            return await self._http.tell(message.url, body=message.body, headers=headers)


def signed_headers(message: WebhookMessage, secrets: Sequence[str], at: datetime) -> dict[str, str]:
    """A signature by each secret, so that a receiver may change over in its own time."""
    name, seconds = f"msg_{message.id.hex}", str(int(at.timestamp()))
    text = f"{name}.{seconds}.".encode() + message.body
    return {
        "webhook-id": name,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(f"v1,{_signature(secret, text)}" for secret in secrets),
    }


def _signature(secret: str, text: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    return base64.b64encode(hmac.digest(key, text, hashlib.sha256)).decode()
