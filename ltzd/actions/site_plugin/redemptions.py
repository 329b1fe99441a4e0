"""Redeems perks for whoever is logged in at a brand's site: a claim or a purchase by his wallet.

A row is written before anything is signed, and everything that follows bears its id: the relay's
idempotency key, the reference on chain. So whoever goes on after a death, or comes along meanwhile,
finds what was done, and no perk is paid for twice. What stands in the way is told before a relay
exists, as long as the chain can tell; then no wallet of the operator's has spent anything.

How much the session may spend, and which pot pays, is decided with the row, under the locks of the
wallet and of the member (`rules/site_plugin/spending.py`, docs/decisions/0023).
"""

import asyncio
from dataclasses import dataclass
from secrets import token_bytes
from uuid import UUID, uuid4

import structlog

from ltzd import telemetry
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.relayer import Relayer
from ltzd.actions.site_plugin.redemption_requests import RedemptionRequests, token_user_of
from ltzd.actions.users.identity_provider import IdentityProvider
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
from ltzd.store.indexer import mint_facts as facts
from ltzd.store.site_plugin import redemption_payments, spending
from ltzd.store.site_plugin import redemptions as site_redemptions
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.redemptions import NewSiteRedemption, RedemptionState, SiteRedemption
from ltzd.store.site_plugin.spending import ActiveLink, SpendingAccount
from ltzd.values import hex_of

log = structlog.get_logger()

WAIT_SECONDS = 60.0
_MOST_BEGINNINGS = 4
"""Of one request, each because something else of the wallet came between."""
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5
"""Between two looks for the fact that pays, which the indexer writes a moment after the relay is
mined."""
_MOVED = "Your account at this site has just changed. Please try again."


@dataclass(frozen=True, slots=True)
class PerkOffer:
    """`cost_units` is in LTZ's smallest unit."""

    perk: Perk
    cost_units: int
    is_available: bool


@dataclass(frozen=True, slots=True)
class RedeemedPerk:
    """`is_pending`: no fact on chain pays it yet; its code is nobody's to know until one does."""

    redemption: SiteRedemption
    is_pending: bool


@dataclass(frozen=True, slots=True)
class MemberFunds:
    """What a member's wallet holds, as of the indexed block, and what this session may spend of it.

    In LTZ's smallest unit. `link` is the one that lasts.
    """

    balance: int
    spendable: int
    link: ActiveLink | None


@dataclass(frozen=True, slots=True)
class _Order:
    """`max_cost` is in LTZ's smallest unit; None for whatever the perk costs."""

    brand: Brand
    member: Member
    perk_id: UUID
    max_cost: int | None
    deadline: float


class SiteRedemptions:
    def __init__(self, context: RelayContext, relayer: Relayer, identity: IdentityProvider) -> None:
        self._pool = context.pool
        self._clock = context.clock
        self._waiters = context.waiters
        self._relayer = relayer
        self._orders = RedemptionRequests(context.node, context.contracts, identity)

    async def perks(self, brand: Brand) -> list[PerkOffer]:
        """What the brand lists and the chain knows for its own, in the file's order."""
        perks = brand.perks
        async with session(self._pool) as connection:
            offered = await site_redemptions.read_offers(
                connection,
                [perk.collection_id for perk in perks if perk.collection_id is not None],
                [perk.item_id for perk in perks if perk.item_id is not None],
            )
        found = [(perk, offered.of(perk.collection_id, perk.item_id)) for perk in perks]
        return [
            PerkOffer(perk, offer.price, redeeming.is_available(offer))
            for perk, offer in found
            if offer is not None and offer.brand == brand.address
        ]

    async def funds(self, brand: Brand, member: Member) -> MemberFunds:
        async with session(self._pool) as connection:
            balance = await facts.balance(connection, member.wallet)
            account = await spending.read_account(connection, member)
        if account is None or not account.is_of(member):
            return MemberFunds(balance, 0, None)
        return MemberFunds(balance, _pots(brand, account, balance).total, account.link)

    async def redeem(
        self, brand: Brand, member: Member, perk_id: UUID, max_cost: int | None = None
    ) -> RedeemedPerk:
        """Answers when the perk is the wallet's, or after a minute. A perk that costs more than
        `max_cost` is refused.

        The same perk again, while one is open or within a minute of its answer, is the same
        redemption. Raises RedemptionRefused, and Unavailable where the next try goes on with it.
        """
        deadline = self._clock() + WAIT_SECONDS
        try:
            return await self._redeemed(_Order(brand, member, perk_id, max_cost, deadline))
        except LtzdError as error:
            outcome = "refused" if isinstance(error, Refused) else "unavailable"
            telemetry.SITE_REDEMPTIONS.labels(outcome).inc()
            raise

    async def _redeemed(self, order: _Order) -> RedeemedPerk:
        wallet = order.member.wallet
        for _ in range(_MOST_BEGINNINGS):
            begun = await self._begun(order)
            if begun.state is RedemptionState.DONE:
                return _repeated(begun)
            async with self._waiters.user_lock(wallet):
                redeemed = await self._carried_on(order, begun.id)
            if redeemed is not None:
                return redeemed
        raise Unavailable("Other transactions of this wallet came between, one after the other")

    # --- beginning ------------------------------------------------------------------------------

    async def _begun(self, order: _Order) -> SiteRedemption:
        """The one that asking again means, or a new one that nothing known stands against."""
        async with session(self._pool) as connection:
            earlier = await self._joinable(connection, order)
        if earlier is not None:
            return earlier
        perk = order.brand.perk(order.perk_id)
        if perk is None:
            raise RedemptionRefused(redeeming.UNKNOWN)
        standing = await self._orders.standing(perk, order.member.wallet)
        redeeming.check_cost(standing.offer.price, order.max_cost)
        redeeming.check(standing, order.brand.address)
        await self._refuse_hopeless(order, perk)
        while True:
            begun = await self._begin(order, perk, standing)
            if begun is not None:
                return begun

    async def _refuse_hopeless(self, order: _Order, perk: Perk) -> None:
        """Before there is a row, since whoever tries may try for ever."""
        member = order.member
        try:
            await self._relayer.precheck(member.wallet, perk.collection_id, token_user_of(member))
        except Refused as refusal:
            raise RedemptionRefused(redeeming.refusal_sentence(refusal)) from refusal

    async def _begin(
        self, order: _Order, perk: Perk, standing: RedemptionFacts
    ) -> SiteRedemption | None:
        """None if its code was another's."""
        brand, wallet, price = order.brand.address, order.member.wallet, standing.offer.price
        async with transaction(self._pool) as connection:
            await site_redemptions.lock_wallet(connection, wallet)
            earlier = await self._joinable(connection, order)
            if earlier is not None:
                return earlier
            for one in await site_redemptions.list_abandoned(connection, brand, wallet):
                await site_redemptions.fail(connection, one, ABANDONED_UNSENT)
            await spending.lock_member(connection, order.member)
            account = await spending.read_account(connection, order.member)
            if account is None or not account.is_of(order.member):
                raise RedemptionRefused(_MOVED)
            allowed = _pots(order.brand, account, standing.balance)
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

    # --- carrying on, as the only one of this wallet and process --------------------------------

    async def _carried_on(self, order: _Order, redemption: UUID) -> RedeemedPerk | None:
        """From wherever whoever came before has left it; None to begin anew."""
        async with session(self._pool) as connection:
            one = await site_redemptions.by_id(connection, redemption)
            traces = await site_redemptions.read_progress(connection, one)
        match one.state:
            case RedemptionState.DONE:
                return _repeated(one)
            case RedemptionState.FAILED:
                _raise_failure(one)
                return None
            case RedemptionState.REVERSED:
                return None
        if traces.is_paid:
            return await self._finished(one)
        try:
            if traces.relay is not None:
                return await self._joined(order, one, traces.relay)
            return await self._sent(order, one)
        except ValidationFailed as refusal:  # gas is too dear: all others are told as what they are
            raise Unavailable(refusal.message) from refusal

    async def _joined(self, order: _Order, one: SiteRedemption, relay: int) -> RedeemedPerk | None:
        """One that failed under whoever began it is begun anew: this one was told nothing yet."""
        try:
            relayed = await self._relayer.outcome(relay, order.deadline)
        except TransactionFailed:
            await self._fail(one, OVERTAKEN)
            return None
        if relayed is None:
            return None
        if relayed.status is RelayStatus.FAILED:
            await self._fail(one, OVERTAKEN)
            return None
        return await self._settled(order, one, relayed)

    async def _sent(self, order: _Order, one: SiteRedemption) -> RedeemedPerk | None:
        await self._waiters.user_idle(one.wallet, order.deadline)
        if self._clock() >= order.deadline:
            raise Unavailable("An earlier transaction of this wallet is still under way")
        redeeming.check_cost(one.price, order.max_cost)
        if not await self._is_still_paid_for(order, one):
            await self._fail(one, OVERTAKEN)
            return None
        standing: RedemptionFacts | None = None
        try:
            standing = await self._orders.standing(one, one.wallet)
            redeeming.check(standing, one.brand)
            redeeming.check_price(standing.offer, one.price)
            request = await self._orders.request(one, standing)
            relayed = await self._relayer.send(token_user_of(order.member), request, order.deadline)
        except Refused as refusal:
            if redeeming.is_gas_too_dear(refusal):
                raise
            return await self._refused(one, standing, refusal)
        return await self._settled(order, one, relayed)

    async def _is_still_paid_for(self, order: _Order, one: SiteRedemption) -> bool:
        """Whether the pots that it charges are open to the member now: whoever began it may have
        left, and meanwhile his link has ended, or somebody has proven the address."""
        async with session(self._pool) as connection:
            payment, link = await spending.read_charge(connection, one.id)
            account = await spending.read_account(connection, order.member)
        if account is None or not account.is_of(order.member):
            return False
        is_linked = account.link is not None and account.link.id == link
        return (not payment.given or _is_believed(order.brand, account)) and (
            not payment.linked or is_linked
        )

    async def _refused(
        self, one: SiteRedemption, standing: RedemptionFacts | None, refusal: Refused
    ) -> RedeemedPerk | None:
        """None if it was refused for what the chain said before and no longer says: a permit's
        nonce that was used meanwhile, say. That, or something else, is for another redemption."""
        sentence = redeeming.refusal_sentence(refusal)
        if (
            standing is not None
            and isinstance(refusal, TransactionFailed | ValidationFailed)
            and await self._orders.standing(one, one.wallet) != standing
        ):
            sentence = OVERTAKEN
        if not await self._fail(one, sentence) or sentence == OVERTAKEN:
            return None
        raise RedemptionRefused(sentence) from refusal

    async def _settled(
        self, order: _Order, one: SiteRedemption, relayed: RelayProgress
    ) -> RedeemedPerk | None:
        match relayed.status:
            case RelayStatus.PENDING:
                return _told(one, "pending")
            case RelayStatus.FAILED:
                sentence = redeeming.revert_sentence(relayed.reason or "")
                if not await self._fail(one, sentence):
                    return None
                raise RedemptionRefused(sentence)
        await self._await_payment(one, order.deadline)
        return await self._finished(one)

    async def _await_payment(self, one: SiteRedemption, deadline: float) -> None:
        """Returns when a fact pays the redemption, or at the deadline.

        A receipt says that the relay was mined; the code is given for the indexed fact alone,
        which a reorganisation takes back in the same transaction as the block.
        """
        pause = _FIRST_PAUSE_SECONDS
        while self._clock() < deadline:
            async with session(self._pool) as connection:
                traces = await site_redemptions.read_progress(connection, one)
            if traces.is_paid:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _finished(self, one: SiteRedemption) -> RedeemedPerk:
        """Pending if no fact pays the redemption, or if its payment was lost again."""
        async with transaction(self._pool) as connection:
            is_ours = await redemption_payments.finish(connection, one.id)
            ended = await site_redemptions.by_id(connection, one.id)
        if not is_ours:
            return _repeated(ended)
        log.info("site_redemption.done", redemption=str(one.id))
        return _told(ended, "redeemed")

    async def _fail(self, one: SiteRedemption, failure: str) -> bool:
        """False if it may come yet."""
        async with transaction(self._pool) as connection:
            is_over = await site_redemptions.fail(connection, one, failure)
        if is_over:
            log.info("site_redemption.failed", redemption=str(one.id))
        return is_over


def _is_believed(brand: Brand, account: SpendingAccount) -> bool:
    verified_emails = brand.site is not None and brand.site.verified_emails
    return site_spending.is_address_trusted(account.address, verified_emails=verified_emails)


def _pots(brand: Brand, account: SpendingAccount, balance: int) -> PotAmounts:
    believed = _is_believed(brand, account)
    return site_spending.pots(account.ledger, believed=believed, balance=balance)


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


def _repeated(one: SiteRedemption) -> RedeemedPerk:
    """The code again, unless nothing pays for it at this moment."""
    is_paid = one.state is RedemptionState.DONE and not one.is_payment_lost
    return _told(one, "repeated" if is_paid else "pending")


def _told(one: SiteRedemption, outcome: str) -> RedeemedPerk:
    telemetry.SITE_REDEMPTIONS.labels(outcome).inc()
    return RedeemedPerk(one, is_pending=outcome == "pending")


def _raise_failure(one: SiteRedemption) -> None:
    """It failed while the next in turn waited, who hears the same: RedemptionRefused."""
    if one.failure is not None and one.failure not in {OVERTAKEN, ABANDONED_UNSENT}:
        raise RedemptionRefused(one.failure)
