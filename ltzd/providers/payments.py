"""The one client of the payment provider: opens and reads checkout sessions and verifies events.

Uses the provider's own SDK, with its retries and its connections. Answers are copied into our own
types; an answer without a needed field raises PaymentsUnavailable, as does every failure that a
repeat may cure or that is between us and the provider. The provider's error texts may quote an
e-mail address, so no such text reaches a log or an error.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import aiohttp
import stripe
import structlog

from ltzd import telemetry
from ltzd.concurrency.bounded_connector import BoundedConnector
from ltzd.errors import IdempotencyKeyReused, InvalidFields, PaymentRefused, PaymentsUnavailable
from ltzd.providers.checkouts import CheckoutPage, PaymentsPolicy
from ltzd.providers.outbound.http_client import AsyncCloseable
from ltzd.providers.outbound.json_bodies import InvalidJsonError, decode_json
from ltzd.rules.payments.provider_events import EVENT_TOLERANCE_SECONDS, id_of
from ltzd.rules.payments.sessions import CURRENCY, CheckoutOrder, CheckoutSession

_log = structlog.get_logger()

stripe.enable_telemetry = False

_REPEATS = 2
_CONNECT_SECONDS = 3.0
_MAX_ANSWER_BYTES = 1 << 18
_REFUND = "payment_intent.latest_charge"

_FIELDS = {
    "success_url": "successUrl",
    "cancel_url": "cancelUrl",
    "customer_email": "userEmail",
    "line_items[0][price_data][unit_amount]": "amount",
}
"""Our names of the fields that the provider may refuse even if they are well-formed."""

_UNUSABLE = (
    aiohttp.ClientError,
    OSError,
    TimeoutError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
)
"""Errors that leave the SDK for a body that breaks off, or that is JSON but not an object of its
own."""

_Refusal: TypeAlias = stripe.InvalidRequestError | stripe.IdempotencyError
Answer = TypeVar("Answer")


class PaymentProvider(AsyncCloseable):
    """Made inside the event loop that uses it."""

    def __init__(self, policy: PaymentsPolicy) -> None:
        self._policy = policy
        # The SDK logs each request with its body below this level.
        logging.getLogger("stripe").setLevel(logging.WARNING)
        # Connections of their own: anybody may open checkouts, and name sessions that do not exist,
        # which must not hold up what the provider says was paid.
        tls = ssl.create_default_context(cafile=stripe.ca_bundle_path)
        self._http = tuple(_http_client(policy, tls) for _ in range(3))
        self._checkouts, self._named, self._announced = (
            _client(policy, http) for http in self._http
        )

    async def close(self) -> None:
        for http in self._http:
            await http.close_async()  # type: ignore[no-untyped-call]

    async def open_session(self, order: CheckoutOrder, idempotency_key: str) -> CheckoutPage:
        """Open a checkout session; the same key with the same order gives the same session.

        Raises InvalidFields for a field that the provider refuses, IdempotencyKeyReused, and
        PaymentsUnavailable.
        """
        metadata = order.metadata()
        answer = await self._send(
            self._checkouts.v1.checkout.sessions.create_async(
                {
                    "mode": "payment",
                    # Without it a setting of the account lets customers pay in another currency.
                    "adaptive_pricing": {"enabled": False},
                    "line_items": [
                        {
                            "quantity": 1,
                            "price_data": {
                                "currency": CURRENCY,
                                "unit_amount": order.usd_cents,
                                "product_data": {"name": f"{order.ltz} LTZ"},
                            },
                        }
                    ],
                    "customer_email": order.email,
                    "success_url": order.success_url,
                    "cancel_url": order.cancel_url,
                    "metadata": metadata,
                    "payment_intent_data": {"metadata": metadata},
                },
                {"idempotency_key": idempotency_key},
            ),
            _checkout_page,
        )
        if isinstance(answer, CheckoutPage):
            return answer
        raise _refusal(answer) from answer

    async def session(
        self, session_id: str, *, is_announced: bool = False
    ) -> CheckoutSession | None:
        """Return the session as it is now; None if our account has no session with this id.

        `is_announced`: an event of the provider names the session. Raises PaymentsUnavailable.
        """
        client = self._announced if is_announced else self._named
        answer = await self._send(
            client.v1.checkout.sessions.retrieve_async(session_id, {"expand": [_REFUND]}),
            lambda session: _session(session_id, session),
        )
        if isinstance(answer, CheckoutSession):
            return answer
        if answer.http_status == 404:
            return None
        raise _unavailable(answer) from answer

    def event(self, raw: bytes, signature: str | None) -> object:
        """Return the JSON of an event, if the provider has signed it within the tolerance.

        Raises PaymentRefused.
        """
        try:
            stripe.WebhookSignature.verify_header(
                raw, signature, self._policy.signing_secret, EVENT_TOLERANCE_SECONDS
            )
            is_early = _signed_at(signature) > time.time() + EVENT_TOLERANCE_SECONDS
        # The SDK compares ASCII text only, and the body may be no text at all.
        except (stripe.SignatureVerificationError, UnicodeError, TypeError) as error:
            raise _not_signed() from error
        if is_early:
            raise _not_signed()
        try:
            return decode_json(raw)
        except InvalidJsonError as error:
            raise PaymentRefused("The event is malformed: it is not JSON") from error

    async def _send(
        self,
        call: Awaitable[stripe.StripeObject],
        read: Callable[[Mapping[str, Any]], Answer],
    ) -> Answer | _Refusal:
        """Return what `read` makes of the answer, or the provider's refusal of the request itself.

        Raises PaymentsUnavailable.
        """
        with telemetry.timed_provider("payments"):
            try:
                async with asyncio.timeout(self._policy.timeout_seconds):
                    return read((await call).to_dict())
            except (stripe.InvalidRequestError, stripe.IdempotencyError) as error:
                return error
            except stripe.StripeError as error:
                raise _unavailable(error) from error
            except _UNUSABLE as error:
                _log.warning("payments.unavailable", reason=type(error).__name__)
                raise PaymentsUnavailable("The payment provider gave no usable answer") from error


def _http_client(policy: PaymentsPolicy, tls: ssl.SSLContext) -> stripe.AIOHTTPClient:
    return stripe.AIOHTTPClient(
        timeout=aiohttp.ClientTimeout(total=policy.attempt_seconds, connect=_CONNECT_SECONDS),
        connector=BoundedConnector(_MAX_ANSWER_BYTES, tls=tls),
    )


def _client(policy: PaymentsPolicy, http: stripe.AIOHTTPClient) -> stripe.StripeClient:
    return stripe.StripeClient(
        policy.secret_key,
        base_addresses={"api": policy.base_url.rstrip("/")},
        http_client=http,
        max_network_retries=_REPEATS,
    )


def _unavailable(error: stripe.StripeError) -> PaymentsUnavailable:
    _log.warning(
        "payments.unavailable",
        reason=type(error).__name__,
        status=error.http_status,
        code=error.code,
        provider_request=error.request_id,
    )
    return PaymentsUnavailable("The payment provider is not available")


def _refusal(
    error: _Refusal,
) -> InvalidFields | IdempotencyKeyReused | PaymentsUnavailable:
    if isinstance(error, stripe.IdempotencyError):
        return IdempotencyKeyReused("This idempotency key was used with another request")
    name = _FIELDS.get(error.param or "")
    if name is None:
        return _unavailable(error)
    return InvalidFields([f"{name}: the payment provider refuses it"])


def _not_signed() -> PaymentRefused:
    return PaymentRefused(
        "Stripe-Signature: missing, not of this body and endpoint, "
        f"or not within {EVENT_TOLERANCE_SECONDS} seconds of our time"
    )


def _signed_at(signature: str | None) -> int:
    """Read as the SDK does, which refuses only timestamps that are too old."""
    items = (item.split("=", 2) for item in (signature or "").split(","))
    return next(int(item[1]) for item in items if item[0] == "t")


def _checkout_page(answer: Mapping[str, Any]) -> CheckoutPage:
    return CheckoutPage(_text(answer["id"]), _text(answer["url"]))


def _text(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise TypeError("the payment provider's answer lacks a text")


def _session(session_id: str, answer: Mapping[str, Any]) -> CheckoutSession:
    if answer["id"] != session_id:
        raise ValueError("the payment provider's answer is of another session")
    total = answer.get("amount_total")
    return CheckoutSession(
        id=session_id,
        mode=answer.get("mode"),
        status=answer.get("status"),
        payment_status=answer.get("payment_status"),
        currency=answer.get("currency"),
        amount_total=total if type(total) is int else None,
        payment_intent_id=id_of(answer.get("payment_intent")),
        refunded_cents=_refunded(answer.get("payment_intent")),
        metadata={
            name: text
            for name, text in (answer.get("metadata") or {}).items()
            if isinstance(text, str)
        },
    )


def _refunded(payment_intent: object) -> int:
    """Return the refunded cents of the charge that has paid."""
    charge = payment_intent.get("latest_charge") if isinstance(payment_intent, Mapping) else None
    refunded = charge.get("amount_refunded") if isinstance(charge, Mapping) else None
    return refunded if type(refunded) is int else 0
