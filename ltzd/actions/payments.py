"""Sells LTZ: opens checkout sessions, and mints each paid session once (spec 2.5, 2.6).

A session is minted from the provider's record of it, which is fetched for this; what a caller or a
webhook claims is not trusted. One statement writes payment and reward, so of all concurrent
requests and webhooks for a session exactly one mints and the others find it done.
"""

import hashlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import structlog
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.actions.event_handler.hash_waiter import MintHashWaiters
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.actions.users.registration import UserRegistration
from ltzd.errors import (
    BrandUnknown,
    MintPending,
    PaymentRefused,
    PaymentsUnavailable,
    Refused,
    Unavailable,
)
from ltzd.providers.checkouts import CheckoutPage, PaymentProviderAccess
from ltzd.rules.payments.provider_events import (
    PaymentDispute,
    PaymentRefund,
    RefundedCharge,
    RefundFailed,
    SessionPaid,
    Unrelated,
    parse_event,
)
from ltzd.rules.payments.reversals import reversal_of
from ltzd.rules.payments.sessions import (
    LTZ_PER_CENT,
    NO_BRAND,
    REFUNDED,
    CheckoutOrder,
    Payment,
    not_found,
    payment_of,
    refuse_over_capacity,
    refused_refund,
)
from ltzd.store import payments
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import rewards
from ltzd.store.payments import PaymentOutcome, ReversalRow
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.wakeups import REWARDS, WEBHOOKS, WakeupHub
from ltzd.values import Address, Hash32, hex_of

if TYPE_CHECKING:
    from ltzd.providers.payments import PaymentProvider

log = structlog.get_logger()

_QUEUED = telemetry.REWARDS_QUEUED.labels("payment")


class CheckoutRequest(msgspec.Struct, frozen=True):
    """A well-formed request; the caller chooses `idempotency_key`."""

    brand_id: Address
    usd_cents: int
    email: str
    success_url: str
    cancel_url: str
    idempotency_key: str | None = None


class MintedPayment(msgspec.Struct, frozen=True):
    """`transaction_hash` may change through a replacement or a reorg."""

    payment: Payment
    transaction_hash: Hash32
    already_processed: bool


class Payments:
    """Without a `provider` nothing is sold: PaymentsUnavailable, except for a recorded session.

    The answer to a payment waits `hash_wait_seconds` for the mint's hash; after that MintPending
    tells the caller to ask again.
    """

    def __init__(  # noqa: PLR0913 (one parameter per collaborator)
        self,
        pool: Pool,
        wakeups: WakeupHub,
        brands: BrandCache,
        identity: IdentityProvider,
        hashes: MintHashWaiters,
        provider: PaymentProviderAccess | None,
        capacity: MintCapacity,
        erased: ErasedAddresses,
        *,
        hash_wait_seconds: float = 5.0,
    ) -> None:
        self._pool = pool
        self._wakeups = wakeups
        self._brands = brands
        self._registration = UserRegistration(pool, identity, erased)
        self._hashes = hashes
        self._provider = provider
        self._capacity = capacity
        self._hash_wait_seconds = hash_wait_seconds

    # Checkout

    async def open_checkout(self, request: CheckoutRequest) -> CheckoutPage:
        """Raises the narrowest Refused or Unavailable."""
        try:
            opened = await self._open(request)
        except Refused:
            telemetry.CHECKOUTS.labels("refused").inc()
            raise
        except Unavailable:
            telemetry.CHECKOUTS.labels("unavailable").inc()
            raise
        telemetry.CHECKOUTS.labels("opened").inc()
        log.info("checkout.opened", brand=hex_of(request.brand_id), session=opened.id)
        return opened

    async def _open(self, request: CheckoutRequest) -> CheckoutPage:
        brand = self._brands.get(request.brand_id)
        if brand is None:
            raise BrandUnknown("Unknown brand")
        provider = await self._opened_provider()
        ltz = request.usd_cents * LTZ_PER_CENT
        refuse_over_capacity(request.usd_cents, await self._capacity.whole_ltz_for(ltz))
        order = CheckoutOrder(
            brand_id=request.brand_id,
            wallet=(await self._registration.user_of(request.email, brand)).wallet,
            usd_cents=request.usd_cents,
            email=request.email,
            success_url=request.success_url,
            cancel_url=request.cancel_url,
        )
        return await provider.open_session(order, _key(request))

    async def _opened_provider(self) -> "PaymentProvider":
        if self._provider is None:
            raise PaymentsUnavailable("No payment provider is configured")
        return await self._provider.client()

    # Minting

    async def mint(self, session_id: str) -> MintedPayment:
        """Raises PaymentRefused, and Unavailable while the same request may succeed later."""
        payment, is_new = await self._counted(session_id)
        return MintedPayment(payment, await self._hash(payment, is_new), not is_new)

    async def _counted(
        self, session_id: str, *, is_announced: bool = False
    ) -> tuple[Payment, bool]:
        try:
            payment, is_new = await self._recorded(session_id, is_announced=is_announced)
        except Refused:
            telemetry.PAYMENTS.labels("refused").inc()
            raise
        except Unavailable:
            telemetry.PAYMENTS.labels("unavailable").inc()
            raise
        telemetry.PAYMENTS.labels("recorded" if is_new else "repeated").inc()
        return payment, is_new

    async def _recorded(self, session_id: str, *, is_announced: bool) -> tuple[Payment, bool]:
        """Return the payment, and whether this call wrote it."""
        async with session(self._pool) as connection:
            known = await payments.find(connection, session_id)
        if known is not None:
            return known, False
        return await self._record(await self._fetch_payment(session_id, is_announced=is_announced))

    async def _fetch_payment(self, session_id: str, *, is_announced: bool) -> Payment:
        """Fetch the paid session from the provider."""
        provider = await self._opened_provider()
        checkout = await provider.session(session_id, is_announced=is_announced)
        if checkout is None:
            raise not_found()
        payment = payment_of(checkout)
        # A disabled brand's payment counts, too: its customer has paid.
        is_ours = self._brands.revision_of(payment.brand_id) > 0
        return payment if is_ours else replace(payment, brand_id=NO_BRAND)

    async def _record(self, payment: Payment) -> tuple[Payment, bool]:
        async with transaction(self._pool) as connection:
            await payments.lock_intent(connection, payment.payment_intent_id)
            recorded = await payments.record(connection, payment)
            _report_reversals(recorded.reversals)
        if recorded.outcome is PaymentOutcome.REFUNDED:
            raise refused_refund()
        if recorded.outcome is PaymentOutcome.NEW:
            self._announce(payment)
        if recorded.outcome is PaymentOutcome.FOUND_MINTED:
            log.warning("payment.found_minted", session=payment.session_id)
        self._wake_webhooks(recorded.reversals)
        return payment, recorded.outcome is PaymentOutcome.NEW

    def _announce(self, payment: Payment) -> None:
        """Log a committed payment and wake the mint lane."""
        log.info(
            "payment.recorded",
            session=payment.session_id,
            brand=hex_of(payment.brand_id),
            wallet=hex_of(payment.wallet),
            ltz=payment.ltz,
        )
        _QUEUED.inc()
        self._wakeups.notify(REWARDS)

    def _wake_webhooks(self, reversals: Sequence[ReversalRow]) -> None:
        if any(reversal.is_announced for reversal in reversals):
            self._wakeups.notify(WEBHOOKS)

    async def _hash(self, payment: Payment, is_new: bool) -> Hash32:
        """Raises MintPending."""
        reward = payments.reward_id(payment.session_id)
        hash_ = None
        if not is_new:
            async with session(self._pool) as connection:
                hash_ = (await rewards.published_hashes(connection, [reward])).get(reward)
        if hash_ is None and not self._brands.is_paused(payment.brand_id):
            hash_ = await self._hashes.wait(reward, self._hash_wait_seconds)
        if hash_ is None:
            raise MintPending("The payment's mint is not published yet")
        return hash_

    # The provider's events

    async def process_event(self, raw: bytes, signature: str | None) -> None:
        """Apply a webhook event of the provider; its effect is committed when this returns.

        Raises PaymentRefused if the event is not the provider's, and Unavailable, after which the
        provider sends it again.
        """
        provider = await self._opened_provider()
        event = parse_event(provider.event(raw, signature))
        match event:
            case SessionPaid():
                await self._mint_told(event.session_id)
            case PaymentRefund() | RefundedCharge() | PaymentDispute():
                await self._reverse(event)
            case RefundFailed():
                await self._report_failed_refund(event)
            case Unrelated():
                log.debug("payment.event_unrelated", type=event.type)

    async def _mint_told(self, session_id: str) -> None:
        """A refusal is not raised: the provider would only send the same event again."""
        try:
            await self._counted(session_id, is_announced=True)
        except PaymentRefused as refusal:
            reason = str(refusal.details.get("reason"))
            if reason == REFUNDED:
                log.warning("payment.refunded_before_mint", session=session_id)
                return
            telemetry.PAYMENTS_NOT_MINTED.labels(reason).inc()
            log.error("payment.not_minted", session=session_id, reason=reason)

    async def _reverse(self, event: PaymentRefund | RefundedCharge | PaymentDispute) -> None:
        async with transaction(self._pool) as connection:
            await payments.lock_intent(connection, event.payment_intent_id)
            known = await payments.refunds_of(connection, event.payment_intent_id)
            reversal = reversal_of(event, known)
            if reversal is None:
                return
            written = await payments.record_reversal(connection, reversal)
            written_rows = [] if written is None else [written]
            _report_reversals(written_rows)
        self._wake_webhooks(written_rows)

    async def _report_failed_refund(self, refund: RefundFailed) -> None:
        """Log an error: an operator tells the brand, which was told of a refund.

        The refund stays recorded, and a repeat of the event is reported again.
        """
        async with session(self._pool) as connection:
            session_id = await payments.session_of(connection, refund.payment_intent_id)
        of = "unknown" if session_id is None else "minted"
        telemetry.PAYMENT_REVERSALS.labels("failed_refund", of).inc()
        log.error(
            "payment.refund_failed",
            provider_id=refund.id,
            payment_intent=refund.payment_intent_id,
            session=session_id,
            usd_cents=refund.usd_cents,
        )


def _report_reversals(rows: Sequence[ReversalRow]) -> None:
    """Log an error for a minted payment: an operator decides about its LTZ.

    Called before the commit: a process that died right after the commit would tell nobody. If the
    commit fails, the provider sends the event again.
    """
    for row in rows:
        reversal = row.reversal
        of = "unknown" if row.session_id is None else "minted"
        telemetry.PAYMENT_REVERSALS.labels(reversal.kind, of).inc()
        (log.warning if row.session_id is None else log.error)(
            "payment.reversed",
            kind=reversal.kind,
            reversal=str(row.id),
            provider_id=reversal.provider_id,
            payment_intent=reversal.payment_intent_id,
            session=row.session_id,
            usd_cents=reversal.usd_cents,
        )


def _key(request: CheckoutRequest) -> str:
    """Return the idempotency key for the provider, so that repeats of a request open one session.

    The key is derived from the brand and the caller's key, or random if the caller gives none.
    """
    if request.idempotency_key is None:
        return f"ltzd-{secrets.token_hex(16)}"
    digest_input = request.brand_id + request.idempotency_key.encode()
    return f"ltzd-{hashlib.sha256(digest_input).hexdigest()}"
