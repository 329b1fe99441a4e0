"""The limits of a relay's user: claims with their constraints, and gas budgets.

The checks save the nodes' work; the write of the relay decides (`admission.py`).
"""

from collections.abc import Sequence

from ltzd.actions.constraints.evaluation import PurchaseConstraints
from ltzd.actions.relayer.context import RelayContext
from ltzd.chain.contracts import perk_nft
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.view import ChainView
from ltzd.concurrency.batcher import Batcher
from ltzd.errors import NodeUnavailable
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.relayer.calls import RelayRequest, RequestedClaim
from ltzd.rules.relayer.gas_budgets import GasBudgets, GasLedger
from ltzd.rules.relayer.limits import (
    ClaimLimit,
    RelayUsage,
    check_claims,
    claim_limit_reached,
)
from ltzd.store.database import session
from ltzd.store.indexer import collections
from ltzd.store.indexer.collections import IndexedClaims
from ltzd.store.relayer import gas_budgets
from ltzd.values import Address


class RelayLimits:
    def __init__(
        self, context: RelayContext, constraints: PurchaseConstraints, budgets: GasBudgets
    ) -> None:
        self._pool = context.pool
        self._views = context.views
        self._index = context.index
        self._constraints = constraints
        self._gas_budgets = budgets
        self._indexed_claims: Batcher[tuple[Address, int], IndexedClaims | None] = Batcher(
            self._read_claims
        )

    async def check_claim(
        self,
        caller: TokenUser | None,
        request: RelayRequest,
        claim: RequestedClaim | None,
        usage: RelayUsage,
    ) -> ClaimLimit | None:
        """Return the claim's limit, on which its write decides again, or None for another call.

        Raises ClaimLimitReached, and ValidationFailed for a purchase constraint.
        """
        if claim is None:
            return None
        claim_limit = await self._claim_limit(request, claim)
        if claim_limit is not None:
            check_claims(usage, claim_limit)
        await self._constraints.check(
            request.user, claim.collection_id, caller, claim.expected_claims + 1
        )
        return claim_limit

    async def check_gas_budgets(self, user: Address, caller: TokenUser | None) -> str:
        """Return the identity whose gas budget a relay of this wallet counts in.

        This check saves the node's work for a spent budget; the write decides. Raises RateLimited
        for the identity's budget, and ValidationFailed for the total budget.
        """
        identity = None if caller is None else caller.subject
        budgets = self._gas_budgets
        if identity is not None and not budgets.limit_relays:
            return identity
        async with session(self._pool) as connection:
            identity = identity or await gas_budgets.identity_of(connection, user)
            if budgets.limit_relays:
                GasLedger(budgets, await gas_budgets.spent(connection, [identity])).check(identity)
        return identity

    async def check_claims_again(self, request: RelayRequest, claim: RequestedClaim | None) -> None:
        """Raise ClaimLimitReached for a claim that reverts because another was mined meanwhile."""
        if claim is None:
            return
        limit = await self._claim_limit_on_chain(request, claim)
        if limit is not None and limit.most is not None and limit.on_chain >= limit.most:
            raise claim_limit_reached(limit.claim.collection_id, limit.on_chain, limit.most)

    async def _claim_limit(self, request: RelayRequest, claim: RequestedClaim) -> ClaimLimit | None:
        """The user's claims as indexed; as on chain if the index is old or lacks the collection.

        A fresh index may be a moment behind: PerkNFT itself refuses a claim too many in the
        simulation.
        """
        indexed = await self._indexed_claims.ask((request.user, claim.collection_id))
        if indexed is None or not await self._index.is_fresh():
            return await self._claim_limit_on_chain(request, claim)
        return ClaimLimit(claim, indexed.claims, indexed.max_per_user or None)

    async def _claim_limit_on_chain(
        self, request: RelayRequest, claim: RequestedClaim
    ) -> ClaimLimit | None:
        """Return None for an unknown collection, which the simulation will refuse."""
        questions = [
            (request.to, perk_nft.collection_call(claim.collection_id)),
            (request.to, perk_nft.claims_of_call(request.user, claim.collection_id)),
        ]

        async def read(view: ChainView) -> ClaimLimit | None:
            try:
                collection, claims = await view.views(questions)
                most = perk_nft.decode_collection(collection).max_per_user or None
                return ClaimLimit(claim, perk_nft.decode_claims(claims), most)
            except RpcError:
                return None
            except ValueError as error:
                raise NodeUnavailable(
                    "The node's answer is not PerkNFT's", kind="malformed"
                ) from error

        return await self._views.decide(read)

    async def _read_claims(
        self, users_and_collections: Sequence[tuple[Address, int]]
    ) -> list[IndexedClaims | None]:
        async with session(self._pool) as connection:
            return await collections.read_claims(connection, users_and_collections)
