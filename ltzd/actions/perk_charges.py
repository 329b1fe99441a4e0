"""Brands redeem charges of their perks' tokens, read a token, and list the holders.

A redemption is written once, under its token's lock, together with the nonce of its signature. The
call names how many charges are left before it, so the chain refuses a redemption that was decided
on outdated facts. Several redemptions of one token may be in flight, each counting on those before
it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar
from uuid import UUID, uuid4

import msgspec
import structlog
from cachetools import LRUCache
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.gas_refusals import count_gas_refusal
from ltzd.actions.relayer.outcomes import cancellation_reason, unknown_without_database
from ltzd.actions.request_signatures import RequestSignatures
from ltzd.cache.rate_limits import RateLimits
from ltzd.chain.contracts import abi_words, perk_nft, reverts
from ltzd.chain.node.node import Node
from ltzd.chain.node.second_opinions import is_passed_by_others
from ltzd.chain.node.typed_calls.requests import BlockRef
from ltzd.chain.node.view import ChainView
from ltzd.concurrency.batcher import Batcher
from ltzd.concurrency.clock import loop_time
from ltzd.errors import (
    HolderChanged,
    IdempotencyKeyReused,
    LtzdError,
    NodeUnavailable,
    Refused,
    RelayPending,
    SignatureRefused,
    TransactionFailed,
    Unavailable,
)
from ltzd.rules import perk_charges
from ltzd.rules.operator.l1_costs import NO_L1_COSTS
from ltzd.rules.perk_charges import Token
from ltzd.rules.relayer.calls import RelayProgress, RelayStatus
from ltzd.rules.relayer.gas_budgets import NO_BUDGETS, GasBudgets, GasLedger, brand_account
from ltzd.rules.request_signatures import NONCE_SECONDS, NONCE_WAS_USED, SignedRequest
from ltzd.store import perk_charges as redemptions
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Connection, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer import chains, collections, tokens
from ltzd.store.indexer.collections import CollectionOwner
from ltzd.store.indexer.tokens import TokenLookup, TokenPage
from ltzd.store.perk_charges import ChargeRedemption, NewChargeRedemption, StoredRedemption
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.replica import ReplicaReads
from ltzd.store.wakeups import RELAYS
from ltzd.values import Address, address_of, checksummed

log = structlog.get_logger()

Found = TypeVar("Found")

GAS_LIMIT = 100_000
"""A redemption needs at most 56,000 (docs/contracts.md). A rollup's gas for data comes on top."""
_CALL_BYTES = 4 + 5 * 32
_INDEX_PAUSE_SECONDS = 0.1
_PAGES_KEPT = 100
"""The most requested pages of holders; each is valid until the next block."""


class RedeemRequest(msgspec.Struct, frozen=True):
    """`user` is the expected holder of the token; without it any holder is accepted."""

    brand: Address
    nonce: str
    collection_id: int
    token_id: int
    amount: int
    user: Address | None
    reference: str | None
    idempotency_key: str | None
    fingerprint: bytes


class SignedCaller(msgspec.Struct, frozen=True):
    """The brand that signed a request, and the request's nonce, not yet used up."""

    brand: Address
    nonce: str


class RedeemedCharges(msgspec.Struct, frozen=True):
    redemption: ChargeRedemption
    already_processed: bool


class IndexedHeight(msgspec.Struct, frozen=True):
    """The indexer's position when the answer was read."""

    block: int
    final_block: int


class _Admitted(msgspec.Struct, frozen=True):
    """A stored redemption and its relay. `is_new`: this request has stored them."""

    id: UUID
    relay: int
    is_new: bool


class PerkCharges:
    """`redeem` waits at most `wait_seconds` for its transaction."""

    def __init__(
        self,
        context: RelayContext,
        brands: BrandCache,
        signatures: RequestSignatures,
        limits: RateLimits,
        sealer: Sealer,
        budgets: GasBudgets = NO_BUDGETS,
        reads: ReplicaReads | None = None,
        *,
        wait_seconds: float = 60.0,
    ) -> None:
        self._wait_seconds = wait_seconds
        self._pool = context.pool
        self._reads = reads or ReplicaReads(context.pool)
        self._budgets = budgets
        self._wakeups = context.wakeups
        self._views = context.views
        self._contract = context.contracts.perk_nft
        self._chain_id = context.contracts.chain_id
        self._waiters = context.waiters
        self._simulator = context.simulator
        self._wallets = context.wallets
        self._brands = brands
        self._signatures = signatures
        self._limits = limits
        self._sealer = sealer
        # Concurrent reads share a query; one query at a time, so that more of them share it.
        self._token_reads: Batcher[tuple[int, int], TokenLookup] = Batcher(
            self._read_tokens, max_concurrent=1
        )
        self._nonces: Batcher[tuple[str, str], bool] = Batcher(self._use_nonces, max_concurrent=1)
        self._pages: LRUCache[tuple[int, int, int], TokenPage] = LRUCache(_PAGES_KEPT)
        self._collections: Batcher[int, CollectionOwner | None] = Batcher(
            self._owned, max_concurrent=1
        )

    async def brand_of(self, signed: SignedRequest | None) -> Address:
        """Return the brand that signed.

        Raises SignatureRefused, with one text for unknown brands and invalid signatures.
        """
        if signed is None:
            raise SignatureRefused("The request is not signed: X-LTZ headers are missing")
        brand = _brand_in(signed.brand_id)
        await self._signatures.check(signed, brand)
        if self._brands.get(brand) is None:
            raise SignatureRefused("The request is not signed by this brand")
        return brand

    async def spend(self, caller: SignedCaller) -> None:
        """Use up the nonce of a redemption or of an invalid query, in the cache.

        Reads use up theirs in the cache alone, so a nonce works once, whichever kind comes first.
        A cache may forget: `redeem` inserts the nonce with the redemption as well. Raises
        SignatureRefused if the nonce was used before.
        """
        await _require_unused(self._begin_using_nonce(caller))

    def _begin_using_nonce(self, caller: SignedCaller) -> asyncio.Future[bool]:
        # In hex, since window names are not case-sensitive.
        name = checksummed(caller.brand), caller.nonce.encode().hex()
        return self._nonces.begin(name)

    async def _use_nonces(self, nonces: Sequence[tuple[str, str]]) -> list[bool]:
        return await self._limits.use_once("signed_nonces", NONCE_SECONDS, nonces)

    async def redeem(self, request: RedeemRequest) -> RedeemedCharges:
        """Return once the redemption is one block deep, or after `wait_seconds`.

        Raises TokenNotFound and the other refusals of `rules/perk_charges`, SignatureRefused for a
        used nonce, IdempotencyKeyReused, TransactionFailed, RelayPending and OutcomeUnknown for a
        redemption that may be sent, and any other Unavailable if nothing was redeemed.
        """
        deadline = loop_time() + self._wait_seconds
        try:
            redeemed = await self._redeem(request, deadline)
        except LtzdError as error:
            telemetry.REDEMPTIONS.labels(_outcome_of(error)).inc()
            count_gas_refusal(error)
            raise
        outcome = "repeated" if redeemed.already_processed else "redeemed"
        telemetry.REDEMPTIONS.labels(outcome).inc()
        return redeemed

    async def token(
        self, caller: SignedCaller, collection_id: int, token_id: int
    ) -> tuple[Token, IndexedHeight]:
        """Return a token of the brand's; uses up the caller's nonce."""
        result = self._token_reads.begin((collection_id, token_id))
        lookup = await self._after_nonce(caller, result)
        perk_charges.check_collection_owner(collection_id, lookup.brand, caller.brand)
        token = perk_charges.token_of(lookup.token, token_id, collection_id)
        return token, IndexedHeight(lookup.block, lookup.final_block)

    async def _after_nonce(self, caller: SignedCaller, result: asyncio.Future[Found]) -> Found:
        """Return the result once the nonce is used up; both round trips run at the same time."""
        try:
            await _require_unused(self._begin_using_nonce(caller))
            return await result
        finally:
            result.cancel()

    async def holders(
        self, caller: SignedCaller, collection_id: int, after: int, limit: int
    ) -> TokenPage:
        """Return the tokens after the id `after`; the page is cached until the next block.

        The page may be a standby's, and old; `answer_age` tells. Uses up the caller's nonce.
        """
        collection = await self._after_nonce(caller, self._collections.begin(collection_id))
        owner = None if collection is None else collection.brand
        perk_charges.check_collection_owner(collection_id, owner, caller.brand)
        assert collection is not None
        wanted = (collection_id, after, limit)
        page = self._pages.get(wanted)
        if page is None or page.block_hash is None or page.block_hash != collection.block_hash:
            page = await self._reads.read(lambda connection: tokens.read_page(connection, *wanted))
            self._pages[wanted] = page
        return page if page.tokens else replace(page, total=collection.minted)

    async def _read_tokens(self, wanted: Sequence[tuple[int, int]]) -> list[TokenLookup]:
        async with session(self._pool) as connection:
            return await tokens.look_up(connection, self._chain_id, wanted)

    async def _owned(self, wanted: Sequence[int]) -> list[CollectionOwner | None]:
        async with session(self._pool) as connection:
            owned = await collections.read_owners(connection, wanted)
        return [owned.get(each) for each in wanted]

    async def _redeem(self, request: RedeemRequest, deadline: float) -> RedeemedCharges:
        try:
            admitted = await self._admit(request)
        except Refused as refusal:
            # A refused request uses up its nonce, too; a replay of it is refused for the nonce.
            async with session(self._pool) as connection:
                await _use_nonce(connection, request, refusal)
            raise
        if isinstance(admitted, ChargeRedemption):
            return RedeemedCharges(admitted, already_processed=True)
        if admitted.is_new:
            self._wakeups.announce(RELAYS)
            log.info("redemption.written", redemption=str(admitted.id), relay=admitted.relay)
        else:
            self._waiters.poll()
        await self._waiters.settled(admitted.relay, deadline)
        with unknown_without_database(is_stored=True):
            redemption = await self._outcome(request, admitted, deadline)
        return RedeemedCharges(redemption, already_processed=not admitted.is_new)

    async def _admit(self, request: RedeemRequest) -> _Admitted | ChargeRedemption:
        """Store the redemption with its relay, or find the earlier one with the same key.

        Returns a redemption that only the chain knows, since a restore has lost its rows.
        """
        l1_costs = NO_L1_COSTS
        with suppress(NodeUnavailable):  # A repeated request is answered without a node.
            l1_costs = await self._simulator.l1_costs()
        gas_limit = GAS_LIMIT + l1_costs.extra_gas(_CALL_BYTES)
        await self._simulate(request, gas_limit)
        l1_fee_wei = l1_costs.max_fee_wei(_CALL_BYTES, gas_limit)
        max_cost_wei = gas_limit * await self._simulator.max_fee() + l1_fee_wei
        wallet = perk_charges.wallet_of(request.token_id, await self._wallets.offered())
        with unknown_without_database(is_stored=False):
            return await self._store(request, wallet, gas_limit, max_cost_wei)

    async def _store(
        self, request: RedeemRequest, wallet: Address | None, gas_limit: int, max_cost_wei: int
    ) -> _Admitted | ChargeRedemption:
        async with transaction(self._pool) as connection:
            await redemptions.lock_token(connection, request.token_id)
            await _use_nonce(connection, request)
            earlier = await self._earlier(connection, request)
            if isinstance(earlier, StoredRedemption):
                return _Admitted(earlier.id, earlier.relay_id, is_new=False)
            if earlier is not None:
                log.warning("redemption.found_on_chain", redemption=str(earlier.id))
                return earlier
            await self._refuse_over_budget(connection, request.brand, max_cost_wei)
            return await self._write(connection, request, wallet, gas_limit, max_cost_wei)

    async def _refuse_over_budget(
        self, connection: Connection, brand: Address, max_cost_wei: int
    ) -> None:
        """Redemptions count in the brand's gas budget, under its lock, and in the total budget.

        Raises BudgetExhausted and ValidationFailed.
        """
        if not self._budgets.limit_redemptions:
            return
        account = brand_account(brand)
        if self._budgets.brand_wei:
            await gas_budgets.lock_identities(connection, [account])
        spent = await gas_budgets.spent_for(connection, self._budgets, [account], max_cost_wei)
        GasLedger(self._budgets, spent).check_redemption(brand, max_cost_wei)

    async def _simulate(self, request: RedeemRequest, gas_limit: int) -> None:
        """Simulate the redemption, unless others of the same token are in flight before it.

        The index may be a block behind the chain: the simulation sees a token sold just now. The
        gas limit is the transaction's, since some rollups' nodes take the data's gas from it.
        """
        async with session(self._pool) as connection:
            if await self._earlier(connection, request) is not None:
                return
            token, before = await self._read_token(connection, request)
        left = perk_charges.remaining_before(token, request.amount, request.user, before)
        if before:
            return
        call = _call(request.token_id, token.holder, request.amount, left, bytes(32))
        sender = await self._wallets.sender()

        async def simulated(node: Node, at: BlockRef = "latest") -> LtzdError | None:
            revert = await node.simulate_call(self._contract, call, sender, gas=gas_limit, at=at)
            if revert is None:
                return None
            if revert.data is None:
                raise NodeUnavailable(f"eth_call: {revert.text}")
            # On ChargesMismatch another redemption came between: decided again under the lock.
            is_late = reverts.error_name(revert.data) == "ChargesMismatch"
            return None if is_late else _refusal(revert.data)

        async def passes(view: ChainView) -> bool:
            return await simulated(view.node, view.head) is None

        async def decide(node: Node) -> LtzdError | None:
            refusal = await simulated(node)
            if refusal is not None and await is_passed_by_others(node, passes):
                return None
            return refusal

        refusal = await self._views.decide_at_head(decide)
        if refusal is not None:
            raise refusal

    async def _earlier(
        self, connection: Connection, request: RedeemRequest
    ) -> ChargeRedemption | None:
        """The redemption with the request's key; of the chain if a restore has lost its rows.

        Raises IdempotencyKeyReused.
        """
        if request.idempotency_key is None:
            return None
        stored = await redemptions.by_key(connection, request.brand, request.idempotency_key)
        if stored is not None:
            _require_same(stored.fingerprint == request.fingerprint)
            return stored
        lost = await redemptions.on_chain(connection, self._ids(request), request.token_id)
        if lost is not None:
            _require_same(lost.amount == request.amount and request.user in (None, lost.holder))
        return lost

    def _ids(self, request: RedeemRequest) -> list[UUID]:
        """The id of a redemption with this key; and those under earlier master keys."""
        assert request.idempotency_key is not None
        place = b"ltzd redemptions " + request.brand + request.idempotency_key.encode()
        return [perk_charges.keyed_id(digest) for digest in self._sealer.keyed_hashes(place)]

    async def _write(
        self,
        connection: Connection,
        request: RedeemRequest,
        wallet: Address | None,
        gas_limit: int,
        max_cost_wei: int,
    ) -> _Admitted:
        token, before = await self._read_token(connection, request)
        left = perk_charges.remaining_before(token, request.amount, request.user, before)
        new = NewChargeRedemption(
            id=uuid4() if request.idempotency_key is None else self._ids(request)[0],
            brand=request.brand,
            collection_id=token.collection_id,
            token_id=token.id,
            holder=token.holder,
            amount=request.amount,
            remaining_before=left,
            max_charges=token.max_charges,
            reference=request.reference,
            idempotency_key=request.idempotency_key,
            fingerprint=request.fingerprint,
        )
        call = _call(token.id, token.holder, request.amount, left, new.id.bytes + bytes(16))
        relay = await redemptions.insert(
            connection, new, self._contract, call, gas_limit, wallet, max_cost_wei
        )
        return _Admitted(new.id, relay, is_new=True)

    async def _outcome(
        self, request: RedeemRequest, admitted: _Admitted, deadline: float
    ) -> ChargeRedemption:
        """Raises TransactionFailed or HolderChanged for a revert, and Unavailable if not sent."""
        async with session(self._pool) as connection:
            redemption = await redemptions.by_id(connection, admitted.id)
            if redemption is not None and redemption.transaction_hash is None:
                async with connection.transaction():
                    await redemptions.lock_token(connection, redemption.token_id)
                    await redemptions.withdraw(connection, redemption)
                self._waiters.poll()  # callers of the token's later ones wait, too
                redemption = await redemptions.by_id(connection, admitted.id)
            progress = (await relays.progress(connection, [admitted.relay])).get(admitted.relay)
        if redemption is None or progress is None:
            raise Unavailable("No relay wallet could send the redemption in time")
        if redemption.succeeded is False and request.idempotency_key is not None:
            lost = await self._by_lost_transaction(request, progress.block_number, deadline)
            if lost is not None:
                return lost
        if progress.transaction_hash is None:
            if progress.status is RelayStatus.FAILED:
                raise TransactionFailed(
                    f"Transaction would fail: {progress.reason}", reason=progress.reason
                )
            raise RelayPending("No node has accepted the redemption yet")
        if redemption.succeeded is False:
            raise await self._failure(progress)
        return redemption

    async def _by_lost_transaction(
        self, request: RedeemRequest, block: int | None, deadline: float
    ) -> ChargeRedemption | None:
        """Return the same redemption by a transaction that a restore has lost before it was mined.

        The contract refuses the repeated redemption once the lost one is mined, in an earlier
        block or in this one, which the index may read later than ltzd has read the receipt.
        """
        while True:
            async with session(self._pool) as connection:
                cursor = await chains.cursor(connection, self._chain_id)
                ids = self._ids(request)
                lost = await redemptions.on_chain(connection, ids, request.token_id)
            if lost is not None or cursor.number >= (block or 0) or loop_time() > deadline:
                return lost
            await asyncio.sleep(_INDEX_PAUSE_SECONDS)

    async def _failure(self, relay: RelayProgress) -> LtzdError:
        if relay.is_cancelled:
            reason = await cancellation_reason(self._pool, relay)
            return TransactionFailed(f"Transaction failed: {reason}", reason=reason)
        if relay.block_number is None or relay.sender is None:
            return TransactionFailed("Transaction failed: its nonce was used by another", reason="")
        data = await self._simulator.revert_data(
            relay.to, relay.data, relay.sender, relay.block_number
        )
        return _refusal(data or b"")

    async def _read_token(
        self, connection: Connection, request: RedeemRequest
    ) -> tuple[Token, int]:
        """The token, if it is the brand's, and its charges under way. Raises the refusals."""
        owner = await collections.brand_of(connection, request.collection_id)
        perk_charges.check_collection_owner(request.collection_id, owner, request.brand)
        charges = await redemptions.read_token_charges(connection, request.token_id)
        token, under_way = (None, 0) if charges is None else (charges.token, charges.under_way)
        return perk_charges.token_of(token, request.token_id, request.collection_id), under_way


async def _use_nonce(
    connection: Connection, request: RedeemRequest, instead_of: Refused | None = None
) -> None:
    """Raises SignatureRefused if the nonce was used before."""
    if not await redemptions.use_nonce(connection, request.brand, request.nonce, uuid4()):
        raise SignatureRefused(NONCE_WAS_USED) from instead_of


def _require_same(is_same: bool) -> None:
    if not is_same:
        raise IdempotencyKeyReused("This idempotency key was used with another request")


async def _require_unused(use: asyncio.Future[bool]) -> None:
    if not await use:
        raise SignatureRefused(NONCE_WAS_USED)


def _brand_in(text: str) -> Address:
    try:
        return address_of(text)
    except ValueError as error:
        raise SignatureRefused("X-LTZ-Brand-Id must be the brand's address") from error


def _call(token_id: int, holder: Address, amount: int, left: int, reference: bytes) -> bytes:
    return perk_nft.redeem_charge_call(token_id, holder, amount, left, reference)


def _refusal(data: bytes) -> LtzdError:
    reason = reverts.describe(data)
    if reverts.error_name(data) == "HolderChanged":
        with suppress(ValueError):  # malformed data is described like any other revert
            words = abi_words.WordReader(data[4:])
            token, holder = str(words.uint()), checksummed(words.address())
            return HolderChanged(
                "The token has changed hands", tokenId=token, holder=holder, reason=reason
            )
    return TransactionFailed(f"Transaction failed: {reason}", reason=reason)


def _outcome_of(error: LtzdError) -> str:
    if isinstance(error, TransactionFailed):
        return "failed"
    return "unavailable" if isinstance(error, Unavailable) else "refused"
