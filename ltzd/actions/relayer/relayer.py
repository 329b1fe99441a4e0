"""POST /relay: takes a user's call from its checks to its outcome (spec 4.2).

The checks run in this order: wallet, idempotency key, permit's deadline, contract, function and
principal, value and gas limit, the user's hour, gas budgets, claim limit, constraints, simulation,
fees. The checks whose result another request of the same user may have changed are repeated before
the one write, which stores the call if the user's rows are still the same. Nothing is stored before
that write, so a crash leaves nothing behind; after it a lane sends the call even if the caller is
gone.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.actions.constraints.evaluation import PurchaseConstraints
from ltzd.actions.relayer.admission import RelayAdmission
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.early_simulation import (
    EarlySimulation,
    EarlySimulations,
    SimulatedCall,
)
from ltzd.actions.relayer.gas_refusals import count_gas_refusal
from ltzd.actions.relayer.limits import RelayLimits
from ltzd.actions.relayer.outcomes import (
    NOT_SENT_IN_TIME,
    RelayOutcomes,
    unknown_without_database,
)
from ltzd.actions.relayer.simulation import SimulatedAt
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.view import ChainView
from ltzd.chain.relayer.calls import DealParties, DecodedRelay, decode_relay
from ltzd.concurrency.batcher import Batcher
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.futures import done_future
from ltzd.errors import (
    LtzdError,
    NodeUnavailable,
    NotFound,
    Refused,
    TransactionFailed,
    Unavailable,
)
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.relayer.admission import Conflict, NewRelay, SimulatedOn
from ltzd.rules.relayer.calls import (
    RelayPlan,
    RelayProgress,
    RelayRequest,
    RelayWindow,
)
from ltzd.rules.relayer.gas_budgets import NO_BUDGETS, GasBudgets
from ltzd.rules.relayer.limits import (
    ClaimLimit,
    RelayUsage,
    check_failures,
    check_hour,
    check_key,
    check_permit_deadline,
)
from ltzd.store.database import session
from ltzd.store.indexer import escrow_facts
from ltzd.store.relayer import relays
from ltzd.store.relayer.direct_lanes import DirectLanes
from ltzd.values import Address, Hash32

UsageQuery = tuple[Address, str | None, bytes | None]
"""A user, an idempotency key, and the digest of a call."""


class RelayPolicy(msgspec.Struct, frozen=True):
    wait_seconds: float = 60.0
    gas_budgets: GasBudgets = NO_BUDGETS


class BegunRelay(msgspec.Struct, frozen=True):
    """A request whose user's relays are known, for `submit`, which ends what it has begun.

    `migration` moves the user's proven e-mail addresses to the user's wallet. `early` is the call's
    simulation.
    """

    usage: RelayUsage
    migration: asyncio.Future[None]
    early: EarlySimulation | None = None

    def window(self) -> RelayWindow:
        return self.usage.window()


class Relayer:
    def __init__(
        self,
        context: RelayContext,
        users: TokenAuthenticator,
        constraints: PurchaseConstraints,
        policy: RelayPolicy,
        direct_lanes: DirectLanes | None = None,
    ) -> None:
        """`direct_lanes` are the relay lanes of this process."""
        self._pool = context.pool
        self._views = context.views
        self._contracts = context.contracts
        self._waiters = context.waiters
        self._simulator = context.simulator
        self._wallets = context.wallets
        self._index = context.index
        self._users = users
        self._constraints = constraints
        self._policy = policy
        self._admission = RelayAdmission(
            context.pool, context.wakeups, policy.gas_budgets, direct_lanes
        )
        self._limits = RelayLimits(context, constraints, policy.gas_budgets)
        self._outcomes = RelayOutcomes(context)
        self._usages: Batcher[UsageQuery, RelayUsage] = Batcher(self._read_usages)
        self._early = EarlySimulations(self._simulate_early)

    async def run(self) -> None:
        """Write admitted relays until cancelled."""
        await self._admission.run()

    async def user_of(self, token: str) -> TokenUser:
        """Raises Unauthorized, IdentityUnavailable."""
        return await self._users.user_of(token)

    async def begin(self, caller: TokenUser, request: RelayRequest) -> BegunRelay:
        """Read the user's relays; the caller of this method calls `submit` next.

        Raises ValidationFailed if the request's user is no wallet of the caller's, and
        IdentityUnavailable.
        """
        self._prefetch()
        may_begin_early = self._early.has_room and not self._policy.gas_budgets.limit_relays
        digest = request.call_digest if may_begin_early else None
        usage = self._usages.begin((request.user, request.idempotency_key, digest))
        early: EarlySimulation | None = None
        try:
            await self._users.require_wallet(caller, request.user)
            if may_begin_early:
                early = self._early.begin(partial(decode_relay, request, self._contracts))
            return BegunRelay(await usage, self._users.begin_migration(caller), early)
        except BaseException:
            if early is not None:
                early.end()
            raise
        finally:
            usage.cancel()

    async def submit(
        self, caller: TokenUser, request: RelayRequest, begun: BegunRelay
    ) -> tuple[RelayProgress, RelayWindow]:
        """Return the relay once it is one block deep, or as far as it has come after a minute.

        Raises the refusals in the order of the checks, TransactionFailed for a call that would
        revert, RelayPending and OutcomeUnknown for a call that may be sent, and any other
        Unavailable if nothing was sent and the same request may succeed later. A call that was
        mined and failed is returned, not raised: it cost gas, and counts.
        """
        deadline = loop_time() + self._policy.wait_seconds
        try:
            return await self._submit_counted(caller, request, begun, deadline)
        finally:
            if begun.early is not None:
                begun.early.end()
            await begun.migration

    async def send(
        self, caller: TokenUser | None, request: RelayRequest, deadline: float
    ) -> RelayProgress:
        """Submit a request that ltzd makes itself, without a token.

        The caller of this method has checked that the user may make it. `deadline` is a time of the
        event loop's clock.
        """
        self._prefetch()
        begun = BegunRelay(await self._usage(request), done_future(None))
        relay, _ = await self._submit_counted(caller, request, begun, deadline)
        return relay

    async def outcome(self, relay_id: int, deadline: float) -> RelayProgress | None:
        """Wait for a relay that was admitted before.

        Returns None for a relay that was withdrawn, and raises what `send` raised or would raise
        for its request.
        """
        return await self._outcomes.wait(relay_id, deadline)

    async def find(
        self, caller: TokenUser, transaction_hash: Hash32
    ) -> tuple[RelayProgress, RelayWindow]:
        """Find a relay by the hash of any of its attempts.

        Raises NotFound, also for another user's relay, and for one that no node has taken.
        """
        wallets = await self._users.wallets_of(caller)
        async with session(self._pool) as connection:
            relay = await relays.by_hash(connection, transaction_hash, wallets)
            if relay is None or relay.transaction_hash is None:
                raise NotFound("Relay not found")
            (usage,) = await relays.read_usage(connection, [(relay.user, None)])
        return await self._outcomes.with_reason(relay), usage.window()

    async def precheck(
        self, user: Address, collection_id: int | None, caller: TokenUser | None
    ) -> None:
        """Raise what would refuse any purchase of the user now, or any claim from a collection.

        Raises RateLimited, and ValidationFailed for a constraint or a spent total gas budget.
        """
        check_hour(await self._usages.ask((user, None, None)))
        await self._limits.check_gas_budgets(user, caller)
        if collection_id is not None:
            await self._constraints.check(user, collection_id, caller)

    async def _submit_counted(
        self,
        caller: TokenUser | None,
        request: RelayRequest,
        begun: BegunRelay,
        deadline: float,
    ) -> tuple[RelayProgress, RelayWindow]:
        try:
            relay, window = await self._submit(caller, request, begun, deadline)
        except LtzdError as error:
            telemetry.RELAYS.labels(_outcome_label(error)).inc()
            count_gas_refusal(error)
            raise
        telemetry.RELAYS.labels(relay.status.value).inc()
        return relay, window

    async def _submit(
        self,
        caller: TokenUser | None,
        request: RelayRequest,
        begun: BegunRelay,
        deadline: float,
    ) -> tuple[RelayProgress, RelayWindow]:
        while True:
            try:
                answer = await self._attempt(caller, request, begun, deadline)
            except Refused:
                # A request with the same key may have been mined since its user's relays were
                # read: its call is refused a second time.
                if begun.usage.earlier is not None or not await self._was_admitted(request):
                    raise
                answer = None
            if answer is not None:
                return answer
            self._check_deadline(deadline)
            begun = BegunRelay(await self._usage(request), begun.migration)

    async def _was_admitted(self, request: RelayRequest) -> bool:
        """Whether a request with the same idempotency key is stored."""
        if request.idempotency_key is None:
            return False
        return (await self._usage(request)).earlier is not None

    async def _attempt(
        self,
        caller: TokenUser | None,
        request: RelayRequest,
        begun: BegunRelay,
        deadline: float,
    ) -> tuple[RelayProgress, RelayWindow] | None:
        """Return None if the user's rows have changed meanwhile, so the caller decides again."""
        usage, early = begun.usage, begun.early
        check_key(usage, request.fingerprint)
        if usage.earlier is not None:
            return await self._answer(usage.earlier.id, usage.window(), deadline, is_new=False)
        check_permit_deadline(request.permit, time.time())
        decoded = None if early is None else early.decoded
        decoded = decoded or decode_relay(request, self._contracts)
        check_hour(usage)
        identity = await self._limits.check_gas_budgets(request.user, caller)
        if decoded.claim is not None:
            await begun.migration  # constraints are about the user
        if decoded.serialized_per_user and usage.has_serialized_in_flight:
            # The permit, for one, was signed for the state after the relay in flight.
            await self._limits.check_claim(caller, request, decoded.claim, usage)
            await self._wait_until_idle(request.user, deadline)
            return None

        async def simulate(plan: RelayPlan, at: SimulatedAt) -> NewRelay:
            claim_limit = await self._limits.check_claim(caller, request, plan.claim, usage)
            new = self._new_relay(request, plan, claim_limit, usage, identity)
            return await self._simulate(request, new, at, None if usage.was_relayed else early)

        decoded = await self._with_indexed_deal(decoded)
        new = await self._simulated(decoded, simulate)
        self._check_deadline(deadline)
        with unknown_without_database(is_stored=False):
            admission = await self._admission.admit(new, usage)
        if isinstance(admission, Conflict):
            if admission.duplicate_id is not None:
                await self._waiters.settled(admission.duplicate_id, deadline)
            return None
        is_new = admission.is_new and new.failure is None
        with telemetry.timed(telemetry.RELAY_SECONDS):
            return await self._answer(admission.id, admission.window, deadline, is_new=is_new)

    async def _answer(
        self, relay_id: int, window: RelayWindow, deadline: float, *, is_new: bool
    ) -> tuple[RelayProgress, RelayWindow] | None:
        relay = await self._outcomes.wait(relay_id, deadline, is_new=is_new)
        return None if relay is None else (relay, window)

    async def _wait_until_idle(self, user: Address, deadline: float) -> None:
        """A claim or purchase is simulated only after the user's previous one is mined."""
        await self._waiters.user_idle(user, deadline)
        if loop_time() >= deadline:
            raise Unavailable("An earlier claim or purchase of this user is still under way")

    async def _with_indexed_deal(self, decoded: DecodedRelay) -> DecodedRelay:
        """Add the parties of the call's deal if the index knows them: they never change."""
        if decoded.deal_id is None or not await self._index.is_fresh():
            return decoded
        async with session(self._pool) as connection:
            parties = await escrow_facts.read_parties(connection, decoded.deal_id)
        return decoded if parties is None else replace(decoded, deal_parties=DealParties(*parties))

    async def _simulated(
        self,
        decoded: DecodedRelay,
        simulate: Callable[[RelayPlan, SimulatedAt], Awaitable[NewRelay]],
    ) -> NewRelay:
        """Plan and simulate a call on one node; all reads of a plan with several are of one block.

        Raises NodeUnavailable, and what `simulate` raises.
        """

        async def in_view(view: ChainView) -> NewRelay:
            plan = await self._plan(decoded, view)
            return await simulate(plan, SimulatedAt(view.node, view.head))

        async def at_head(node: Node) -> NewRelay:
            plan = await self._decide(decoded, [])
            return await simulate(plan, SimulatedAt(node))

        if decoded.required_views:
            return await self._views.decide(in_view)
        return await self._views.decide_at_head(at_head)

    async def _plan(self, decoded: DecodedRelay, view: ChainView) -> RelayPlan:
        try:
            answers = await view.views(decoded.required_views)
        except RpcError as error:
            raise NodeUnavailable(f"eth_call: {error.message}") from error
        return await self._decide(decoded, answers)

    async def _decide(self, decoded: DecodedRelay, answers: Sequence[bytes]) -> RelayPlan:
        accepted, offered = await self._wallets.accepted(), await self._wallets.offered()
        return decoded.plan(answers, accepted, offered)

    def _new_relay(
        self,
        request: RelayRequest,
        plan: RelayPlan,
        claim_limit: ClaimLimit | None,
        usage: RelayUsage,
        identity: str,
    ) -> NewRelay:
        return NewRelay(
            plan=plan,
            gas_limit=0,
            max_cost_wei=0,
            idempotency_key=request.idempotency_key,
            fingerprint=request.fingerprint,
            claim_limit=claim_limit,
            last_serialized_id=usage.last_serialized_id,
            identity=identity,
            simulated=SimulatedOn.of(usage),
        )

    async def _simulate(
        self,
        request: RelayRequest,
        new: NewRelay,
        at: SimulatedAt,
        early: EarlySimulation | None,
    ) -> NewRelay:
        """Add what a simulation tells.

        Raises TransactionFailed for a call that would revert and has no idempotency key, and
        RateLimited if it has one and too many such calls of the user are kept.
        """
        plan = new.plan
        sender = plan.wallet or await self._wallets.sender()
        try:
            gas_limit = None if early is None else await early.gas_limit(plan, sender)
            if gas_limit is None:
                gas_limit = await self._simulator.gas_limit(plan, sender, request.gas_limit, at)
        except TransactionFailed as failed:
            await self._limits.check_claims_again(request, plan.claim)
            if request.idempotency_key is None:
                raise
            async with session(self._pool) as connection:
                check_failures(*await relays.kept_failures(connection, request.user))
            return replace(new, failure=str(failed.details["reason"]))
        fees, l1_costs = await self._simulator.fees(), await self._simulator.l1_costs()
        l1_fee_wei = l1_costs.max_fee_wei(len(plan.data), gas_limit)
        max_cost_wei = gas_limit * fees.max_fee_per_gas + l1_fee_wei
        return replace(new, gas_limit=gas_limit, max_cost_wei=max_cost_wei)

    async def _simulate_early(self, decoded: DecodedRelay) -> SimulatedCall:
        async def at_head(node: Node) -> SimulatedCall:
            plan = await self._decide(decoded, [])
            sender = plan.wallet or await self._wallets.sender()
            gas_limit = await self._simulator.gas_limit(
                plan, sender, decoded.request.gas_limit, SimulatedAt(node)
            )
            return SimulatedCall(plan, sender, gas_limit)

        return await self._views.decide_at_head(at_head)

    def _prefetch(self) -> None:
        self._wallets.prefetch()
        self._simulator.prefetch()
        self._index.prefetch()

    async def _usage(self, request: RelayRequest) -> RelayUsage:
        return await self._usages.ask((request.user, request.idempotency_key, None))

    async def _read_usages(self, queries: Sequence[UsageQuery]) -> list[RelayUsage]:
        async with session(self._pool) as connection:
            return await relays.read_usage(
                connection,
                [(user, key) for user, key, _ in queries],
                [digest for _, _, digest in queries],
            )

    def _check_deadline(self, deadline: float) -> None:
        """Raises Unavailable: a relay is not admitted once its caller has stopped waiting."""
        if loop_time() >= deadline:
            raise Unavailable(NOT_SENT_IN_TIME)


def _outcome_label(error: LtzdError) -> str:
    if isinstance(error, TransactionFailed):
        return "failed"
    return "unavailable" if isinstance(error, Unavailable) else "refused"
