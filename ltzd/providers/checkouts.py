"""The payment provider's settings, the page that it answers with, and the way to its client.

They are apart from the client (`payments`), whose SDK takes 6 MiB: a process imports it when it
first needs the provider.
"""

import asyncio
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from ltzd.providers.outbound.http_client import AsyncCloseable

if TYPE_CHECKING:
    from ltzd.providers.payments import PaymentProvider


@dataclass(frozen=True, slots=True)
class PaymentsPolicy:
    """`timeout_seconds` bounds one call with its repeats, `attempt_seconds` one request."""

    base_url: str
    secret_key: str = field(repr=False)
    signing_secret: str = field(repr=False)
    attempt_seconds: float = 8.0
    timeout_seconds: float = 20.0


class CheckoutPage(msgspec.Struct, frozen=True):
    """The page on which the customer of a checkout session pays."""

    id: str
    url: str


class PaymentProviderAccess(AsyncCloseable):
    """Opens the client at its first use; closes it if it was opened."""

    def __init__(self, policy: PaymentsPolicy) -> None:
        self._policy = policy
        self._client: PaymentProvider | None = None

    async def client(self) -> "PaymentProvider":
        if self._client is None:
            # In a thread: the import takes up to half a second, in which the event loop goes on.
            module = await asyncio.to_thread(import_module, "ltzd.providers.payments")
            self._client = self._client or module.PaymentProvider(self._policy)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
