"""POST /relay and what became of it: the operator sends a user's call, if it is one that he may.

Checks run without locks, in the order of choices.md; then one write under the user's lock repeats
those that another request of his may have overtaken. Before that write nothing is kept, so a crash
leaves nothing behind; after it a lane sends the call whoever still waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from ltzd import telemetry
from ltzd.actions.constraints.evaluation import PurchaseConstraints
from ltzd.actions.relayer.admission import Conflict, Draft, RelayAdmission
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.gas_refusals import count_gas_refusal
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.chain.contracts import perk_nft
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.relayer import calls as relay_calls
from ltzd.chain.relayer.calls import DecodedRelay
from ltzd.concurrency.batcher import Batcher
from ltzd.errors import (
    LtzdError,
    NodeUnavailable,
    NotFound,
    RelayPending,
    TransactionFailed,
    Unavailable,
)
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.relayer import limits as relay_limits
from ltzd.rules.relayer.calls import (
    RelayAsk,
    Relayed,
    RelayPlan,
    RelayStatus,
    RelayWindow,
    RequestedClaim,
)
from ltzd.rules.relayer.gas_budgets import NO_BUDGETS, GasBudgets, GasLedger
from ltzd.rules.relayer.limits import ClaimLimit, RelayUsage
from ltzd.store.database import session
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.relayer.relays import Progress
from ltzd.values import Address, Hash32, hex_of

log = structlog.get_logger()

REFUSED_BY_THE_NETWORK = "the network refused the transaction"
_TOO_LATE = "No relay wallet could send the transaction in time"


@dataclass(frozen=True, slots=True)
class RelayPolicy:
    wait_seconds: float = 60.0
    gas_budgets: GasBudgets = NO_BUDGETS


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """`fingerprint` is the SHA-256 of what was asked, however it was written; `speaker` is whose
    token came with it."""

    ask: RelayAsk
    idempotency_key: str | None
    fingerprint: bytes
    speaker: TokenUser | None = None


@dataclass(frozen=True, slots=True)
class RelayAnswer:
    """What became of a relay, and what its user has left of the hour."""

    relayed: Relayed
    window: RelayWindow


class Relayer:
    def __init__(
        self,
        desk: RelayContext,
        users: TokenAuthenticator,
        constraints: PurchaseConstraints,
        policy: RelayPolicy,
    ) -> None:
        self._pool = desk.pool
        self._clock = desk.clock
        self._node = desk.node
        self._contracts = desk.contracts
        self._board = desk.board
        self._rehearsal = desk.rehearsal
        self._operators = desk.operators
        self._users = users
        self._constraints = constraints
        self._policy = policy
        self._writing = RelayAdmission(desk.pool, desk.wakeups, policy.gas_budgets)
        self._standings: Batcher[tuple[Address, str | None], RelayUsage] = Batcher(
            self._standings_of
        )

    async def run(self) -> None:
        await self._writing.run()

    async def user_of(self, token: str) -> TokenUser:
        """Raises Unauthorized, IdentityUnavailable."""
        return await self._users.user_of(token)

    async def standing(self, user: TokenUser, request: RelayRequest) -> RelayUsage:
        """Raises ValidationFailed for a wallet that is not the token's, IdentityUnavailable."""
        await self._users.require_wallet(user, request.ask.user)
        self._operators.prepare()
        self._rehearsal.prepare()
        return await self._standing(request)

    async def send(self, request: RelayRequest, deadline: float) -> RelayAnswer:
        """`submit` without a token: for ltzd itself, whose caller has seen that the user may.

        Answers by `deadline` (of the context's clock).
        """
        self._operators.prepare()
        self._rehearsal.prepare()
        return await self._counted(request, await self._standing(request), deadline)

    async def precheck(
        self, user: Address, collection_id: int | None, speaker: TokenUser | None
    ) -> None:
        """What any purchase of the user's would be refused for now, or any claim from a collection.

        Raises RateLimited, and ValidationFailed for a constraint.
        """
        relay_limits.check_hour(await self._standings.ask((user, None)))
        await self._refuse_over_budget(user, speaker)
        if collection_id is not None:
            await self._constraints.check(user, collection_id, speaker)

    async def end(self, relay: int, deadline: float) -> Relayed | None:
        """What became of a relay that was let in before, as `send` would answer the same request;
        None for one that was taken back."""
        return await self._relayed(relay, deadline, is_new=False)

    async def submit(self, request: RelayRequest, standing: RelayUsage) -> RelayAnswer:
        """Answers when the call is a block deep, or after a minute.

        Raises every refusal of choices.md's order, TransactionFailed for a call that would revert,
        and Unavailable where nothing was sent and the same request may succeed later. A call that
        was mined and failed is answered as such: it cost gas, and counts.
        """
        deadline = self._clock() + self._policy.wait_seconds
        return await self._counted(request, standing, deadline)

    async def find(self, user: TokenUser, transaction_hash: Hash32) -> RelayAnswer:
        """By any hash that the relay ever had.

        Raises NotFound, also for another user's, and for one that no node has taken.
        """
        wallets = await self._users.wallets_of(user)
        async with session(self._pool) as connection:
            found = await relays.by_hash(connection, transaction_hash, wallets)
            if found is None or found.relayed is None:
                raise NotFound("Relay not found")
            (standing,) = await relays.read_usage(connection, [(found.user, None, None)])
        return RelayAnswer(await self._explained(found, found.relayed), standing.window())

    async def _counted(
        self, request: RelayRequest, standing: RelayUsage, deadline: float
    ) -> RelayAnswer:
        try:
            answer = await self._submitted(request, standing, deadline)
        except LtzdError as error:
            telemetry.RELAYS.labels(_outcome_of(error)).inc()
            count_gas_refusal(error)
            raise
        telemetry.RELAYS.labels(answer.relayed.status.value).inc()
        return answer

    async def _submitted(
        self, request: RelayRequest, standing: RelayUsage, deadline: float
    ) -> RelayAnswer:
        while True:
            answer = await self._attempt(request, standing, deadline)
            if answer is not None:
                return answer
            self._check_deadline(deadline)
            standing = await self._standing(request)

    async def _standing(self, request: RelayRequest) -> RelayUsage:
        return await self._standings.ask((request.ask.user, request.idempotency_key))

    async def _standings_of(self, asked: Sequence[tuple[Address, str | None]]) -> list[RelayUsage]:
        async with session(self._pool) as connection:
            return await relays.read_usage(connection, [(*each, None) for each in asked])

    async def _attempt(
        self, request: RelayRequest, standing: RelayUsage, deadline: float
    ) -> RelayAnswer | None:
        """None when it must be decided again: another request of the user's came between."""
        relay_limits.check_key(standing, request.fingerprint)
        if standing.earlier is not None:
            return await self._answer(
                standing.earlier.id, standing.window(), deadline, is_new=False
            )
        understood = relay_calls.decode_relay(request.ask, self._contracts)
        relay_limits.check_hour(standing)
        identity = await self._refuse_over_budget(request.ask.user, request.speaker)
        if understood.serialized_per_user and standing.has_serialized_in_flight:
            # What is signed for after the one in flight, its permit say, is judged after it.
            await self._limits(request, understood.claim, standing)
            await self._turn(request.ask.user, deadline)
            return None
        plan = await self._plan(understood)
        claim_limit = await self._limits(request, plan.claim, standing)
        draft = replace(await self._draft(request, plan, claim_limit, standing), identity=identity)
        self._check_deadline(deadline)
        outcome = await self._writing.write(draft)
        if isinstance(outcome, Conflict):
            if outcome.by is not None:
                await self._board.end(outcome.by, deadline)
            return None
        is_new = outcome.is_ours and draft.failure is None
        with telemetry.timed(telemetry.RELAY_SECONDS):
            return await self._answer(outcome.id, outcome.window, deadline, is_new=is_new)

    async def _refuse_over_budget(self, user: Address, speaker: TokenUser | None) -> str:
        """Whose gas budget a relay of this wallet counts in.

        A spent budget is seen here before a node is asked for anything; the write decides. Raises
        RateLimited, and ValidationFailed for everybody's budget.
        """
        identity = None if speaker is None else speaker.subject
        budgets = self._policy.gas_budgets
        if identity is not None and not budgets.is_set:
            return identity
        async with session(self._pool) as connection:
            identity = identity or await gas_budgets.identity_of(connection, user)
            if budgets.is_set:
                GasLedger(budgets, await gas_budgets.spent(connection, [identity])).check(identity)
        return identity

    async def _plan(self, understood: DecodedRelay) -> RelayPlan:
        questions = understood.questions
        try:
            answers = await self._node.views(questions) if questions else []
        except RpcError as error:
            raise NodeUnavailable(f"eth_call: {error.message}") from error
        return understood.plan(answers, await self._operators.all())

    async def _limits(
        self, request: RelayRequest, claim: RequestedClaim | None, standing: RelayUsage
    ) -> ClaimLimit | None:
        relay_limits.check_hour(standing)
        claim_limit = None if claim is None else await self._claim_limit(request.ask, claim)
        if claim_limit is not None:
            relay_limits.check_claims(standing, claim_limit)
        if claim is not None:
            await self._constraints.check(
                request.ask.user, claim.collection_id, request.speaker, claim.expected_claims + 1
            )
        return claim_limit

    async def _claim_limit(self, ask: RelayAsk, claim: RequestedClaim) -> ClaimLimit | None:
        """None for no collection: the simulation says so."""
        collection = claim.collection_id
        try:
            said, counted = await self._node.views(
                [
                    (ask.to, perk_nft.collection_call(collection)),
                    (ask.to, perk_nft.claims_of_call(ask.user, collection)),
                ]
            )
        except RpcError:
            return None
        try:
            most = perk_nft.decode_collection(said).max_per_user or None
            on_chain = perk_nft.decode_claims(counted)
        except ValueError as error:
            raise NodeUnavailable("The node's answer is not PerkNFT's") from error
        return ClaimLimit(claim, on_chain, most)

    async def _turn(self, user: Address, deadline: float) -> None:
        """Claims and purchases are simulated after the user's previous one is mined."""
        await self._board.turn(user, deadline)
        if self._clock() >= deadline:
            raise Unavailable("An earlier claim or purchase of this user is still under way")

    def _check_deadline(self, deadline: float) -> None:
        """Nothing is let in when nobody would be left to wait for it. Raises Unavailable."""
        if self._clock() >= deadline:
            raise Unavailable(_TOO_LATE)

    async def _draft(
        self,
        request: RelayRequest,
        plan: RelayPlan,
        claim_limit: ClaimLimit | None,
        standing: RelayUsage,
    ) -> Draft:
        sender = plan.wallet or await self._operators.first()
        draft = Draft(
            plan=plan,
            gas_limit=0,
            max_cost_wei=0,
            claim_limit=claim_limit,
            last_serialized_id=standing.last_serialized_id,
            idempotency_key=request.idempotency_key,
            fingerprint=request.fingerprint,
        )
        try:
            gas_limit = await self._rehearsal.gas_limit(plan, sender, request.ask.gas_limit)
        except TransactionFailed as failed:
            await self._recount(request.ask, plan.claim)
            if request.idempotency_key is None:
                raise
            return replace(draft, failure=str(failed.details["reason"]))
        fees = await self._rehearsal.fees()
        return replace(draft, gas_limit=gas_limit, max_cost_wei=gas_limit * fees.max_fee_per_gas)

    async def _recount(self, ask: RelayAsk, claim: RequestedClaim | None) -> None:
        """A claim that reverts because another took the last place meanwhile is over the limit."""
        limit = None if claim is None else await self._claim_limit(ask, claim)
        if limit is not None and limit.most is not None and limit.on_chain >= limit.most:
            raise relay_limits.claim_limit_reached(
                limit.claim.collection_id, limit.on_chain, limit.most
            )

    async def _answer(
        self, relay: int, window: RelayWindow, deadline: float, *, is_new: bool
    ) -> RelayAnswer | None:
        relayed = await self._relayed(relay, deadline, is_new=is_new)
        return None if relayed is None else RelayAnswer(relayed, window)

    async def _relayed(self, relay: int, deadline: float, *, is_new: bool) -> Relayed | None:
        """How it ended, or how far it came by the deadline; None for one that was taken back.

        Raises RelayPending for a signed one that no node has taken: it has no hash to tell.
        """
        if not is_new:
            self._board.look()  # it may have ended long ago
        found = await self._board.end(relay, deadline)
        if found is None:
            await self._withdraw(relay)
            async with session(self._pool) as connection:
                found = (await relays.progress(connection, [relay])).get(relay)
        if found is None:
            return None
        if found.failure is not None:
            raise TransactionFailed(
                f"Transaction would fail: {found.failure}", reason=found.failure
            )
        if found.relayed is None:
            raise RelayPending("No node has taken the transaction yet")
        return await self._explained(found, found.relayed)

    async def _withdraw(self, relay: int) -> None:
        """Take back what nobody has signed in all the time, and say why; else leave it be.

        Whoever waits may do so: the caller who asked first may be gone.
        Raises ValidationFailed if it was the price, Unavailable if it was anything else.
        """
        async with session(self._pool) as connection:
            if not await relays.withdraw(connection, relay):
                return
        log.warning("relay.withdrawn", relay=relay)
        await self._rehearsal.fees()
        raise Unavailable(_TOO_LATE)

    async def _explained(self, found: Progress, relayed: Relayed) -> Relayed:
        if relayed.status is not RelayStatus.FAILED:
            return relayed
        if relayed.is_cancelled:
            return replace(relayed, reason=REFUSED_BY_THE_NETWORK)
        if relayed.block_number is None:
            return replace(relayed, reason="its nonce was used by another transaction")
        reason = await self._rehearsal.why(
            found.to, found.data, relayed.sender, relayed.block_number
        )
        return replace(relayed, reason=reason)


def failure_of(relayed: Relayed) -> TransactionFailed:
    """What a relay that was mined and failed is refused with."""
    return TransactionFailed(
        f"Transaction failed: {relayed.reason}",
        reason=relayed.reason,
        transactionHash=hex_of(relayed.transaction_hash),
        blockNumber=relayed.block_number,
    )


def _outcome_of(error: LtzdError) -> str:
    if isinstance(error, TransactionFailed):
        return "failed"
    return "unavailable" if isinstance(error, Unavailable) else "refused"
