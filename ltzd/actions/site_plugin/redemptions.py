"""Redeems perks for members who are logged in at a brand's site: a claim or a purchase on chain.

A row is written before anything is signed, and every later step carries its id: the relay's
idempotency key and the reference on chain. So a request that continues after a crash, or that comes
meanwhile, finds what was done, and no perk is paid for twice. Obstacles are reported before a relay
exists, as far as the chain shows them; the operator has spent nothing then.

How much the session may spend, and from which pot, is decided together with the row, under the
locks of the wallet and of the member (`rules/site_plugin/spending.py`, docs/decisions/0023).
"""

import asyncio
from secrets import token_bytes
from uuid import UUID, uuid4

import msgspec
import structlog
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.relayer import Relayer
from ltzd.actions.site_plugin.members import ACCOUNT_CHANGED
from ltzd.actions.site_plugin.redemption_requests import RedemptionRequests, token_user_of
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.concurrency.clock import loop_time
from ltzd.errors import (
    LtzdError,
    RedemptionRefused,
    Refused,
    TransactionFailed,
    Unavailable,
    ValidationFailed,
)
from ltzd.rules.brands.configuration import Brand, Perk
from ltzd.rules.relayer.calls import RelayProgress, RelayStatus
from ltzd.rules.site_plugin import redemptions as redeeming
from ltzd.rules.site_plugin import spending as site_spending
from ltzd.rules.site_plugin.redemptions import ABANDONED_UNSENT, OVERTAKEN, RedemptionFacts
from ltzd.rules.site_plugin.spending import PotAmounts
from ltzd.store.database import Connection, session, transaction
from ltzd.store.indexer import mint_facts
from ltzd.store.replica import ReplicaReads
from ltzd.store.site_plugin import redemption_payments, spending
from ltzd.store.site_plugin import redemptions as site_redemptions
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.redemptions import NewSiteRedemption, RedemptionState, SiteRedemption
from ltzd.store.site_plugin.spending import ActiveLink, SpendingAccount
from ltzd.values import hex_of

log = structlog.get_logger()

_MOST_BEGINNINGS = 4
"""How often one request begins anew because another transaction of the wallet came between."""
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5
"""Between two reads of the fact that pays, which is indexed soon after the relay is mined."""


class PerkOffer(msgspec.Struct, frozen=True):
    """`cost_units` is in LTZ's smallest unit."""

    perk: Perk
    cost_units: int
    is_available: bool


class RedeemedPerk(msgspec.Struct, frozen=True):
    """`is_pending`: no fact on chain pays for it yet, and its code is secret until one does."""

    redemption: SiteRedemption
    is_pending: bool


class MemberFunds(msgspec.Struct, frozen=True):
    """The wallet's balance at the indexed block, and how much of it this session may spend.

    Both are in LTZ's smallest unit. `link` is the member's active link.
    """

    balance: int
    spendable: int
    link: ActiveLink | None


class _Order(msgspec.Struct, frozen=True):
    """`max_cost` is in LTZ's smallest unit; without it any cost is accepted.

    `may_use_index`: facts may come from the index instead of a node.
    """

    brand: Brand
    member: Member
    perk_id: UUID
    max_cost: int | None
    deadline: float
    may_use_index: bool = True

    def check(self, facts: RedemptionFacts) -> None:
        """Raises RedemptionRefused."""
        redeeming.check_cost(facts.offer.price, self.max_cost)
        redeeming.check(facts, self.brand.address)


class SiteRedemptions:
    """`redeem` waits at most `wait_seconds` for the perk."""

    def __init__(
        self,
        context: RelayContext,
        relayer: Relayer,
        identity: IdentityProvider,
        reads: ReplicaReads | None = None,
        *,
        wait_seconds: float = 60.0,
    ) -> None:
        self._wait_seconds = wait_seconds
        self._pool = context.pool
        self._reads = reads or ReplicaReads(context.pool)
        self._waiters = context.waiters
        self._relayer = relayer
        self._orders = RedemptionRequests(context, identity)

    async def perks(self, brand: Brand) -> list[PerkOffer]:
        """Return the brand's configured perks that are its own on chain, in the file's order."""
        perks = brand.perks
        collections = [perk.collection_id for perk in perks if perk.collection_id is not None]
        items = [perk.item_id for perk in perks if perk.item_id is not None]
        offered = await self._reads.read(
            lambda connection: site_redemptions.read_offers(connection, collections, items)
        )
        offers = [(perk, offered.of(perk.collection_id, perk.item_id)) for perk in perks]
        return [
            PerkOffer(perk, offer.price, redeeming.is_available(offer))
            for perk, offer in offers
            if offer is not None and offer.brand == brand.address
        ]

    async def funds(self, brand: Brand, member: Member) -> MemberFunds:
        async with session(self._pool) as connection:
            balance = await mint_facts.balance(connection, member.wallet)
            account = await spending.read_account(connection, member)
        if account is None or not account.is_of(member):
            return MemberFunds(balance, 0, None)
        return MemberFunds(balance, _pots(brand, account, balance).total, account.link)

    async def redeem(
        self, brand: Brand, member: Member, perk_id: UUID, max_cost: int | None = None
    ) -> RedeemedPerk:
        """Return once the wallet has the perk, or after `wait_seconds`.

        A perk that costs more than `max_cost` is refused. A request for the same perk while a
        redemption is open, or within a minute of its answer, joins that redemption. Raises
        RedemptionRefused, and Unavailable if the next request will continue this redemption.
        """
        deadline = loop_time() + self._wait_seconds
        try:
            return await self._redeem(_Order(brand, member, perk_id, max_cost, deadline))
        except LtzdError as error:
            outcome = "refused" if isinstance(error, Refused) else "unavailable"
            telemetry.SITE_REDEMPTIONS.labels(outcome).inc()
            raise

    async def _redeem(self, order: _Order) -> RedeemedPerk:
        for _ in range(_MOST_BEGINNINGS):
            begun = await self._find_or_begin(order)
            if begun.state is RedemptionState.DONE:
                return _repeated(begun)
            async with self._waiters.user_lock(begun.wallet):
                redeemed = await self._continue(order, begun.id)
            if redeemed is not None:
                return redeemed
            # The index may not know yet of the transaction that came between.
            order = replace(order, may_use_index=False)
        raise Unavailable(
            "Other transactions of this wallet have used its permit nonce again and again"
        )

    # Beginning

    async def _find_or_begin(self, order: _Order) -> SiteRedemption:
        """Return the redemption to join, or a new one after every check that needs no relay."""
        async with session(self._pool) as connection:
            earlier = await self._joinable(connection, order)
        if earlier is not None:
            return earlier
        perk = order.brand.perk(order.perk_id)
        if perk is None:
            raise RedemptionRefused(redeeming.UNKNOWN)
        facts = await self._orders.checked(
            perk, order.member.wallet, order.check, may_use_index=order.may_use_index
        )
        await self._precheck(order, perk)
        while True:
            begun = await self._begin(order, perk, facts)
            if begun is not None:
                return begun

    async def _precheck(self, order: _Order, perk: Perk) -> None:
        """Refuse before a row is written, so that repeated attempts leave no rows."""
        member = order.member
        try:
            await self._relayer.precheck(member.wallet, perk.collection_id, token_user_of(member))
        except Refused as refusal:
            raise RedemptionRefused(redeeming.refusal_sentence(refusal)) from refusal

    async def _begin(
        self, order: _Order, perk: Perk, facts: RedemptionFacts
    ) -> SiteRedemption | None:
        """Return None if the drawn confirmation code is already in use."""
        brand, wallet, price = order.brand.address, order.member.wallet, facts.offer.price
        async with transaction(self._pool) as connection:
            await site_redemptions.lock_wallet(connection, wallet)
            earlier = await self._joinable(connection, order)
            if earlier is not None:
                return earlier
            for redemption in await site_redemptions.list_abandoned(connection, brand, wallet):
                await site_redemptions.fail(connection, redemption, ABANDONED_UNSENT)
            await spending.lock_member(connection, order.member)
            account = await spending.read_account(connection, order.member)
            if account is None or not account.is_of(order.member):
                raise RedemptionRefused(ACCOUNT_CHANGED)
            allowed = _pots(order.brand, account, facts.balance)
            payment = site_spending.pay(price, allowed, is_linked=account.link is not None)
            begun = await site_redemptions.insert(connection, _new(order, perk, price))
            if begun is not None:
                await spending.write_charge(
                    connection, begun.id, order.member, payment, account.link
                )
        if begun is not None:
            log.info("site_redemption.begun", redemption=str(begun.id), brand=hex_of(brand))
        return begun

    async def _joinable(self, connection: Connection, order: _Order) -> SiteRedemption | None:
        return await site_redemptions.find_joinable(connection, order.member, order.perk_id)

    # Continuing, one redemption of a wallet at a time in this process

    async def _continue(self, order: _Order, redemption_id: UUID) -> RedeemedPerk | None:
        """Continue the redemption from its recorded state; return None to begin again."""
        async with session(self._pool) as connection:
            redemption = await site_redemptions.by_id(connection, redemption_id)
            traces = await site_redemptions.read_progress(connection, redemption)
        match redemption.state:
            case RedemptionState.DONE:
                return _repeated(redemption)
            case RedemptionState.FAILED:
                _raise_failure(redemption)
                return None
            case RedemptionState.REVERSED:
                return None
        if traces.is_paid:
            return await self._finish(redemption)
        try:
            if traces.relay is not None:
                return await self._join(order, redemption, traces.relay)
            return await self._send(order, redemption)
        except ValidationFailed as refusal:  # gas is too dear
            raise Unavailable(refusal.message) from refusal

    async def _join(
        self, order: _Order, redemption: SiteRedemption, relay: int
    ) -> RedeemedPerk | None:
        """Join the relay; if it failed for good for an earlier request, begin a new redemption."""
        try:
            relayed = await self._relayer.outcome(relay, order.deadline)
        except TransactionFailed:
            await self._fail(redemption, OVERTAKEN)
            return None
        if relayed is None:
            return None
        if relayed.status is RelayStatus.FAILED:
            if not await self._fail(redemption, OVERTAKEN):
                await self._refuse_if_reverted(redemption, relayed)
            return None
        return await self._settled(order, redemption, relayed)

    async def _send(self, order: _Order, redemption: SiteRedemption) -> RedeemedPerk | None:
        await self._waiters.user_idle(redemption.wallet, order.deadline)
        if loop_time() >= order.deadline:
            raise Unavailable("An earlier transaction of this wallet is still under way")
        if not (
            redemption.wallet == order.member.wallet
            and _is_offered(order.brand, redemption)
            and await self._is_still_paid_for(order, redemption)
        ):
            await self._fail(redemption, OVERTAKEN)
            return None

        def check(facts: RedemptionFacts) -> None:
            redeeming.check(facts, redemption.brand)
            redeeming.check_price(facts.offer, redemption.price)

        try:
            facts = await self._orders.checked(
                redemption, redemption.wallet, check, may_use_index=order.may_use_index
            )
        except RedemptionRefused as refusal:
            return await self._refused(redemption, None, refusal)
        # After the price was compared: a redemption at a former price fails instead of waiting.
        redeeming.check_cost(redemption.price, order.max_cost)
        try:
            if redemption.price > 0:
                facts = await self._orders.with_permit_nonce(facts, redemption.wallet)
            request = await self._orders.request(redemption, facts)
            relayed = await self._relayer.send(token_user_of(order.member), request, order.deadline)
        except Refused as refusal:
            if redeeming.is_gas_too_dear(refusal):
                raise
            return await self._refused(redemption, facts, refusal)
        return await self._settled(order, redemption, relayed)

    async def _is_still_paid_for(self, order: _Order, redemption: SiteRedemption) -> bool:
        """Return whether the member may still spend from the pots that the redemption charges.

        Since it began the member's link may have ended, or another person may have proven the
        e-mail address.
        """
        async with session(self._pool) as connection:
            payment, link = await spending.read_charge(connection, redemption.id)
            account = await spending.read_account(connection, order.member)
        if account is None or not account.is_of(order.member):
            return False
        is_linked = account.link is not None and account.link.id == link
        return (not payment.given or _is_believed(order.brand, account)) and (
            not payment.linked or is_linked
        )

    async def _refused(
        self, redemption: SiteRedemption, facts: RedemptionFacts | None, refusal: Refused
    ) -> RedeemedPerk | None:
        """Return None, to begin anew, if the chain has changed since the refusal's facts were read.

        A permit's nonce may have been used meanwhile, for redemption.
        """
        sentence = redeeming.refusal_sentence(refusal)
        if (
            facts is not None
            and isinstance(refusal, TransactionFailed | ValidationFailed)
            and (await self._orders.read_facts(redemption, redemption.wallet)).differs_from(facts)
        ):
            sentence = OVERTAKEN
        if not await self._fail(redemption, sentence) or sentence == OVERTAKEN:
            return None
        raise RedemptionRefused(sentence) from refusal

    async def _settled(
        self, order: _Order, redemption: SiteRedemption, relayed: RelayProgress
    ) -> RedeemedPerk | None:
        match relayed.status:
            case RelayStatus.PENDING:
                return _answer(redemption, "pending")
            case RelayStatus.FAILED:
                sentence = redeeming.revert_sentence(relayed.reason or "")
                if not await self._fail(redemption, sentence):
                    await self._refuse_if_reverted(redemption, relayed)
                    return None
                raise RedemptionRefused(sentence)
        await self._await_payment(redemption, order.deadline)
        return await self._finish(redemption)

    async def _refuse_if_reverted(self, redemption: SiteRedemption, relayed: RelayProgress) -> None:
        """Refuse while the revert is not final; the redemption stays open until it is.

        Requests for the perk join the open redemption, so that nothing is paid twice if a reorg
        lets the transaction succeed: the next request gets the code then.
        """
        async with session(self._pool) as connection:
            is_reverted = await site_redemptions.is_reverted(connection, redemption)
        if is_reverted:
            raise RedemptionRefused(redeeming.revert_sentence(relayed.reason or ""))

    async def _await_payment(self, redemption: SiteRedemption, deadline: float) -> None:
        """Return once an indexed fact pays for the redemption, or at the deadline.

        The receipt is not enough: the code is shown for the indexed fact alone, which a reorg
        removes in the same transaction as its block.
        """
        pause = _FIRST_PAUSE_SECONDS
        while loop_time() < deadline:
            async with session(self._pool) as connection:
                traces = await site_redemptions.read_progress(connection, redemption)
            if traces.is_paid:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _finish(self, redemption: SiteRedemption) -> RedeemedPerk:
        """Finish the redemption; it stays pending if no fact pays for it, or not any longer."""
        async with transaction(self._pool) as connection:
            is_ours = await redemption_payments.finish(connection, redemption.id)
            ended = await site_redemptions.by_id(connection, redemption.id)
        if not is_ours:
            return _repeated(ended)
        log.info("site_redemption.done", redemption=str(redemption.id))
        return _answer(ended, "redeemed")

    async def _fail(self, redemption: SiteRedemption, failure: str) -> bool:
        """Mark the redemption as failed; return False if its relay may still be mined."""
        async with transaction(self._pool) as connection:
            is_over = await site_redemptions.fail(connection, redemption, failure)
        if is_over:
            log.info("site_redemption.failed", redemption=str(redemption.id))
        return is_over


def _is_offered(brand: Brand, redemption: SiteRedemption) -> bool:
    """Return whether the brand's file still lists the perk, with the same collection or item."""
    perk = brand.perk(redemption.perk_id)
    return perk is not None and (perk.collection_id, perk.item_id) == (
        redemption.collection_id,
        redemption.item_id,
    )


def _is_believed(brand: Brand, account: SpendingAccount) -> bool:
    verified_emails = brand.site is not None and brand.site.verified_emails
    return site_spending.is_address_trusted(account.address, verified_emails=verified_emails)


def _pots(brand: Brand, account: SpendingAccount, balance: int) -> PotAmounts:
    believed = _is_believed(brand, account)
    return site_spending.available_pots(account.ledger, believed=believed, balance=balance)


def _new(order: _Order, perk: Perk, price: int) -> NewSiteRedemption:
    return NewSiteRedemption(
        id=uuid4(),
        brand=order.brand.address,
        wallet=order.member.wallet,
        perk_id=order.perk_id,
        name=perk.name,
        category=perk.category,
        collection_id=perk.collection_id,
        item_id=perk.item_id,
        price=price,
        confirmation_code=redeeming.code_of(token_bytes(redeeming.CODE_ENTROPY_BYTES)),
    )


def _repeated(redemption: SiteRedemption) -> RedeemedPerk:
    """Return the code again, unless no fact pays for the redemption at the moment."""
    is_paid = redemption.state is RedemptionState.DONE and not redemption.is_payment_lost
    return _answer(redemption, "repeated" if is_paid else "pending")


def _answer(redemption: SiteRedemption, outcome: str) -> RedeemedPerk:
    telemetry.SITE_REDEMPTIONS.labels(outcome).inc()
    return RedeemedPerk(redemption, is_pending=outcome == "pending")


def _raise_failure(redemption: SiteRedemption) -> None:
    """Raise the failure of a redemption for a request that waited behind it."""
    if redemption.failure is not None and redemption.failure not in {OVERTAKEN, ABANDONED_UNSENT}:
        raise RedemptionRefused(redemption.failure)
