"""Reads the state of a perk and a wallet, and builds the relay request that redeems it.

A fresh index is asked first. A refusal is told only if a node agrees with it, and the relay's
simulation decides about the rest. Only a node knows the nonce of a permit.

The request for a perk with a price carries a permit for exactly that price, which the identity
provider signs with the wallet's key; a free perk needs no permit.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from msgspec.structs import replace

from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.chain.contracts import ltz, perk_nft, points_sale, reverts
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.view import ChainView
from ltzd.chain.relayer.calls import RelayContracts, ViewCall
from ltzd.chain.typed_data import DOMAIN_NAMES
from ltzd.errors import NodeUnavailable, RedemptionRefused
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.relayer.calls import RelayRequest, SignedPermit
from ltzd.rules.site_plugin import redemptions as redeeming
from ltzd.rules.site_plugin.redemptions import Offer, RedemptionFacts
from ltzd.store.database import session
from ltzd.store.indexer import chains, collections, mint_facts
from ltzd.store.site_plugin import redemptions
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.redemptions import SiteRedemption
from ltzd.values import Address, hex_of

PERMIT_SECONDS = 1_200
"""Twice the time after which the permit's relay lapses (`store.relayer.relays.LAPSE`)."""


class OfferReference(Protocol):
    """A perk or a redemption, of a collection or of an item; the other id is None."""

    @property
    def collection_id(self) -> int | None: ...

    @property
    def item_id(self) -> int | None: ...


def token_user_of(member: Member) -> TokenUser | None:
    """Return a linked member's user at the identity provider, if the member is linked."""
    return None if member.subject is None else TokenUser(member.subject, None)


class RedemptionRequests:
    def __init__(self, context: RelayContext, identity: IdentityProvider) -> None:
        self._pool = context.pool
        self._index = context.index
        self._views = context.views
        self._contracts = context.contracts
        self._identity = identity

    async def checked(
        self,
        sold: OfferReference,
        wallet: Address,
        check: Callable[[RedemptionFacts], None],
        *,
        may_use_index: bool = True,
    ) -> RedemptionFacts:
        """Return facts that `check` lets pass: those of a fresh index, or else of a node.

        Raises what `check` raises for the node's facts, and RedemptionRefused if the collection or
        item is not on chain.
        """
        if may_use_index and await self._index.is_fresh():
            indexed = await self._indexed(sold, wallet)
            if indexed is not None:
                with suppress(RedemptionRefused):
                    check(indexed)
                    return indexed
        facts = await self.read_facts(sold, wallet)
        check(facts)
        return facts

    async def with_permit_nonce(self, facts: RedemptionFacts, wallet: Address) -> RedemptionFacts:
        """Add the nonce of the wallet's next permit if it is unknown. Raises NodeUnavailable."""
        if facts.permit_nonce is not None:
            return facts

        async def read(node: Node) -> int:
            try:
                answer = await node.view(self._contracts.ltz, ltz.nonces_call(wallet))
                return ltz.decode_uint(answer)
            except RpcError as error:
                raise NodeUnavailable(f"eth_call: {error.message}") from error
            except ValueError as error:
                raise _malformed() from error

        return replace(facts, permit_nonce=await self._views.decide_at_head(read))

    async def _indexed(self, sold: OfferReference, wallet: Address) -> RedemptionFacts | None:
        """The facts without a nonce; None if the collection or item is not indexed."""
        collection_id, item_id = sold.collection_id, sold.item_id
        async with session(self._pool) as connection:
            offers = await redemptions.read_offers(
                connection,
                [] if collection_id is None else [collection_id],
                [] if item_id is None else [item_id],
            )
            offer = offers.of(collection_id, item_id)
            if offer is None:
                return None
            claims = 0
            if collection_id is not None:
                (read,) = await collections.read_claims(connection, [(wallet, collection_id)])
                claims = 0 if read is None else read.claims
            return RedemptionFacts(
                offer=offer,
                balance=await mint_facts.balance(connection, wallet),
                permit_nonce=None,
                claims=claims,
                block_time=await chains.newest_block_time(connection),
            )

    async def read_facts(self, sold: OfferReference, wallet: Address) -> RedemptionFacts:
        """Raises RedemptionRefused if the collection or item is not on chain."""
        questions = _questions(sold, wallet, self._contracts)

        async def read(view: ChainView) -> RedemptionFacts:
            try:
                return _facts_in(sold, await view.views(questions), view.head.timestamp)
            except RpcError as error:
                name = reverts.error_name(error.data or b"")
                if name in {"UnknownCollection", "UnknownItem"}:
                    raise RedemptionRefused(redeeming.revert_sentence(name)) from error
                raise NodeUnavailable(f"eth_call: {error.message}") from error
            except ValueError as error:
                raise _malformed() from error

        return await self._views.decide(read)

    async def request(self, redemption: SiteRedemption, facts: RedemptionFacts) -> RelayRequest:
        to = self._contracts.perk_nft if redemption.item_id is None else self._contracts.points_sale
        permit = await self._permit(redemption, to, facts) if redemption.price > 0 else None
        return RelayRequest(
            to,
            _call(redemption, facts.claims),
            redemption.wallet,
            permit=permit,
            idempotency_key=redemption.idempotency_key,
            fingerprint=redemption.fingerprint,
        )

    async def _permit(
        self, redemption: SiteRedemption, spender: Address, facts: RedemptionFacts
    ) -> SignedPermit:
        """Sign a permit for the price. Raises RedemptionRefused if the key is not available."""
        assert facts.permit_nonce is not None, "the caller has read it"
        # An idle chain has an old head, and a dev chain may be ahead of the clock.
        deadline = max(facts.block_time, int(time.time())) + PERMIT_SECONDS
        message = {
            "owner": hex_of(redemption.wallet),
            "spender": hex_of(spender),
            "value": redemption.price,
            "nonce": facts.permit_nonce,
            "deadline": deadline,
        }
        data = _typed(message, self._contracts.chain_id, self._contracts.ltz)
        try:
            signature = await self._identity.sign_typed_data(redemption.wallet, data)
        except ValueError as error:
            raise RedemptionRefused(redeeming.EXTERNAL_WALLET) from error
        return SignedPermit(redemption.wallet, spender, redemption.price, deadline, signature)


def _malformed() -> NodeUnavailable:
    return NodeUnavailable("The node's answer is not what the contract returns", kind="malformed")


def _questions(sold: OfferReference, wallet: Address, at: RelayContracts) -> list[ViewCall]:
    of_wallet = [(at.ltz, ltz.balance_of_call(wallet)), (at.ltz, ltz.nonces_call(wallet))]
    if sold.collection_id is None:
        assert sold.item_id is not None, "a redemption is of one thing"
        return [(at.points_sale, points_sale.item_call(sold.item_id)), *of_wallet]
    return [
        (at.perk_nft, perk_nft.collection_call(sold.collection_id)),
        *of_wallet,
        (at.perk_nft, perk_nft.claims_of_call(wallet, sold.collection_id)),
    ]


def _facts_in(sold: OfferReference, answers: Sequence[bytes], block_time: int) -> RedemptionFacts:
    """Raises ValueError."""
    offer, balance, nonce, *claims = answers
    return RedemptionFacts(
        offer=_item(offer) if sold.collection_id is None else _collection(offer),
        balance=ltz.decode_uint(balance),
        permit_nonce=ltz.decode_uint(nonce),
        claims=perk_nft.decode_claims(claims[0]) if claims else 0,
        block_time=block_time,
    )


def _collection(answer: bytes) -> Offer:
    collection = perk_nft.decode_collection(answer)
    has_limit = collection.max_supply > 0
    return Offer(
        brand=collection.brand,
        price=collection.price,
        is_active=collection.is_active,
        left=max(0, collection.max_supply - collection.minted) if has_limit else None,
        max_per_user=collection.max_per_user or None,
        needs_signature=collection.requires_signature,
    )


def _item(answer: bytes) -> Offer:
    item = points_sale.decode_item(answer)
    return Offer(
        brand=item.brand,
        price=item.price,
        is_active=item.is_active,
        left=max(0, item.stock - item.sold),
    )


def _call(redemption: SiteRedemption, claims: int) -> bytes:
    if redemption.collection_id is not None:
        return perk_nft.claim_for_call(
            redemption.wallet,
            redemption.collection_id,
            redemption.price,
            claims,
            redemption.reference,
        )
    assert redemption.item_id is not None, "a redemption is of one thing"
    return points_sale.buy_for_call(
        redemption.wallet, redemption.item_id, 1, redemption.price, redemption.reference
    )


def _typed(message: dict[str, object], chain_id: int, token: Address) -> dict[str, Any]:
    """An EIP-2612 permit of LTZ as wallets sign it."""
    domain = {
        "name": DOMAIN_NAMES["LTZ"],
        "version": "1",
        "chainId": chain_id,
        "verifyingContract": hex_of(token),
    }
    kinds = {"name": "string", "version": "string", "chainId": "uint256"}
    kinds |= {"verifyingContract": "address", "owner": "address", "spender": "address"}
    return {
        "types": {
            name: [{"name": each, "type": kinds.get(each, "uint256")} for each in fields]
            for name, fields in (("EIP712Domain", domain), ("Permit", message))
        },
        "primaryType": "Permit",
        "domain": domain,
        "message": message,
    }
