"""Rebuilds the index: fills fresh tables beside the live ones, and swaps them.

A rebuild is a row of `rebuilds`, ordered by `ltzd index rebuild` or by a follower that finds other
contracts indexed than those of its settings. Any process with the role indexer carries it out,
under a lease of its own, so that the live index goes on following the head meanwhile. An index of
other contracts, or one that is stopped, stands still until the swap.

The fresh tables are filled by a `Follower` on connections whose search path finds them before the
live ones, its cursor included. So reorgs, stale nodes and kills are handled as for the live index:
each commit is atomic, and the next holder of the lease continues from it. After a kill the state of
the row says what to do next:

- `ordered`: the fresh tables are created, and the state set, in one database transaction.
- `copying`: the kept facts are copied, range by range, behind the fresh cursor.
- `filling`: the follower reads on. Once it has arrived at the head, one short database transaction
  swaps the tables (`store/indexer/rebuild/swap`).
- `swapped`: rewards and redemptions are corrected in batches; the old tables are dropped.
- `cancelled`: the fresh tables are dropped.

The fresh tables are created again if the schema's revision or the contracts have changed since.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import asyncpg
import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.outages import Outage
from ltzd.errors import Broken, DatabaseUnavailable, ImpossibleFact, LaneLost, Unavailable
from ltzd.indexer.contracts import IndexedContract
from ltzd.indexer.follower import Follower
from ltzd.rules.indexer.rebuilds import may_swap
from ltzd.store import background_migrations, database
from ltzd.store.connection_errors import reason_of
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.indexer.impossible import refused_as_impossible
from ltzd.store.indexer.rebuild import copying, fresh_tables, orders, reconciling, swap
from ltzd.store.indexer.rebuild.orders import Rebuild
from ltzd.store.indexer.rebuild.swap import TablesBusy
from ltzd.store.operator.leases import Leases, rebuild_lease
from ltzd.store.wakeups import BLOCKS, WakeupHub

log = structlog.get_logger()

_REPAIR_KEPT = (
    "Run: ltzd index repair, which corrects them and begins the rebuild again; or cancel the "
    "rebuild, and order one that keeps nothing, without --from"
)


class RebuildPolicy(msgspec.Struct, frozen=True):
    """Pauses in seconds."""

    poll_seconds: float = 1.0
    """Between two reads of whether a rebuild is ordered, cancelled, or ready to swap."""
    retry_seconds: float = 5.0
    """After a failure; doubled each time for facts that contradict each other, up to
    `longest_retry_seconds`."""
    longest_retry_seconds: float = 600.0
    busy_seconds: float = 1.0
    """After a swap that found a table locked; doubled each time, up to `busiest_seconds`."""
    busiest_seconds: float = 30.0
    resume_seconds: float = 60.0
    """Before blocks are read again whose facts were impossible."""


class _Postponed(msgspec.Struct, frozen=True):
    """A rebuild that an impossible fact has stopped, until `retry_at` of the event loop's clock.

    A rebuild that is repaired or cancelled meanwhile has another state, and is not postponed.
    """

    id: int
    state: orders.State
    pause: float
    retry_at: float

    def is_of(self, rebuild: Rebuild) -> bool:
        return (self.id, self.state) == (rebuild.id, rebuild.state)


class Rebuilder:
    """Carries out one rebuild at a time. `is_working` is true while this process does."""

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        chain: ChainIdentity,
        contracts: Sequence[IndexedContract],
        open_fresh_pool: Callable[[str], Awaitable[Pool]],
        build_follower: Callable[[Pool], Follower],
        hub: WakeupHub,
        policy: RebuildPolicy | None = None,
    ) -> None:
        """`open_fresh_pool` gets the search path of its sessions."""
        self._pool = pool
        self._leases = leases
        self._chain = chain
        self._contracts = contracts
        self._addresses = tuple(contract.address for contract in contracts)
        self._tables = ["blocks", *(table for contract in contracts for table in contract.tables)]
        self._open_fresh_pool = open_fresh_pool
        self._build_follower = build_follower
        self._blocks = hub.subscribe(BLOCKS)
        self._hub = hub
        self._policy = policy or RebuildPolicy()
        self.is_working = False
        self._postponed: _Postponed | None = None
        self._outage = Outage("rebuild.interrupted", "rebuild.continues")

    async def run(self) -> None:
        """Carry out rebuilds until cancelled.

        A fact that contradicts the others delays the rebuild and never ends the process: the live
        index, HTTP and the lanes do not need the fresh tables. The rebuild stays open, since
        `ltzd index repair` can correct the kept facts, and then begins the rebuild again.
        """
        while True:
            pause = self._policy.poll_seconds
            try:
                rebuild = await self._open_rebuild()
                if rebuild is not None and self._is_postponed(rebuild):
                    await asyncio.sleep(pause)
                    continue
                if rebuild is not None and self._may_serve(rebuild):
                    async with self._leases.hold(rebuild_lease(self._chain.chain_id)):
                        await self._serve()
            except Broken as error:
                self._outage.failed(error.message)
            except Unavailable as error:
                self._outage.failed(error.message)
                pause = self._policy.retry_seconds
            else:
                self._outage.over()
            finally:
                self.is_working = False
                telemetry.INDEX_REBUILDS.set(0)
            await asyncio.sleep(pause)

    def _is_postponed(self, rebuild: Rebuild) -> bool:
        postponed = self._postponed
        return (
            postponed is not None and postponed.is_of(rebuild) and loop_time() < postponed.retry_at
        )

    def _postpone(self, rebuild: Rebuild) -> None:
        """Let the pause grow while the rebuild fails in the same state."""
        before, pause = self._postponed, self._policy.retry_seconds
        if before is not None and before.is_of(rebuild):
            pause = min(2 * before.pause, self._policy.longest_retry_seconds)
        self._postponed = _Postponed(rebuild.id, rebuild.state, pause, loop_time() + pause)

    def _may_serve(self, rebuild: Rebuild) -> bool:
        """Whether this process has the contracts that the rebuild reads.

        Any process may end what is left of one.
        """
        return rebuild.state in ("swapped", "cancelled") or rebuild.contracts in (
            None,
            self._addresses,
        )

    async def _open_rebuild(self) -> Rebuild | None:
        async with session(self._pool) as connection:
            return await orders.find_open(connection)

    async def _serve(self) -> None:
        self.is_working = True
        telemetry.INDEX_REBUILDS.set(1)
        rebuild = await self._open_rebuild()
        while rebuild is not None and self._may_serve(rebuild):
            try:
                await self._continue(rebuild)
                self._postponed = None
            except Broken as error:
                self._postpone(rebuild)
                await self._note(rebuild, error.message)
                raise
            except Unavailable as error:
                await self._note(rebuild, error.message)
                raise
            except (asyncpg.PostgresError, *database.LOST) as error:
                await self._note(rebuild, f"The database refuses: {reason_of(error)}")
                raise DatabaseUnavailable(f"A rebuild failed: {reason_of(error)}") from error
            rebuild = await self._open_rebuild()

    async def _note(self, rebuild: Rebuild, error: str | None) -> None:
        async with session(self._pool) as connection:
            await orders.note_error(connection, rebuild.id, error)

    async def _continue(self, rebuild: Rebuild) -> None:
        """Do what the state asks for; returns when the state may have changed."""
        if rebuild.state == "swapped":
            await self._reconcile(rebuild)
            await self._drop_replaced(rebuild)
            log.info("rebuild.done", rebuild=rebuild.id)
        elif rebuild.state == "cancelled":
            await self._end(rebuild)
            log.info("rebuild.cancelled", rebuild=rebuild.id)
        elif rebuild.state == "ordered" or not await self._fits(rebuild):
            await self._create(rebuild)
        else:
            await self._fill(rebuild)

    # Fresh tables

    async def _fits(self, rebuild: Rebuild) -> bool:
        """Whether the fresh tables have the schema and the contracts of this program."""
        async with session(self._pool) as connection:
            revision = await _revision(connection)
        return rebuild.revision == revision and rebuild.contracts == self._addresses

    async def _create(self, rebuild: Rebuild) -> None:
        async with session(self._pool) as connection:
            if await background_migrations.list_pending(connection):
                await orders.note_error(connection, rebuild.id, orders.WAITS_FOR_MIGRATIONS)
                await asyncio.sleep(self._policy.retry_seconds)
                return
        async with transaction(self._pool) as connection:
            if not await orders.is_still(connection, rebuild):
                return
            await fresh_tables.create(connection, self._tables)
            await copying.start(connection, self._chain.chain_id, self._addresses)
            revision = await _revision(connection)
            await orders.begin(connection, rebuild.id, self._addresses, revision)
        log.warning(
            "rebuild.begun",
            rebuild=rebuild.id,
            reason=rebuild.reason,
            from_block=rebuild.from_block,
        )

    @asynccontextmanager
    async def _fresh_pool(self) -> AsyncIterator[Pool]:
        async with session(self._pool) as connection:
            path = f"{fresh_tables.FRESH}, {await fresh_tables.live_schema(connection)}"
        pool = await self._open_fresh_pool(path)
        try:
            yield pool
        finally:
            pool.terminate()

    async def _fill(self, rebuild: Rebuild) -> None:
        """Fill the fresh tables up to the head, and swap. Returns early if it is cancelled."""
        async with self._fresh_pool() as pool:
            if rebuild.state == "copying":
                await self._copy(rebuild, pool)
            follower = self._build_follower(pool)
            filling = asyncio.create_task(follower.serve())
            try:
                has_swapped = await self._swap_when_ready(rebuild, pool, filling)
            finally:
                filling.cancel()
                await asyncio.wait([filling])
        if has_swapped:
            self._hub.notify(BLOCKS)

    async def _copy(self, rebuild: Rebuild, pool: Pool) -> None:
        """Copy the final facts below `from_block`, and what follows from them."""
        chain_id = self._chain.chain_id
        fact_tables = [table.name for contract in self._contracts for table in contract.fact_tables]
        derive = [contract.derive for contract in self._contracts]
        async with transaction(pool) as connection:
            epoch = await chains.begin_term(connection, chain_id)
            await chains.record_contracts(connection, chain_id, self._addresses)
        more = True
        while more:
            with _kept_facts_blamed(rebuild):
                async with transaction(pool) as connection:
                    more = await copying.copy_next(
                        connection, chain_id, epoch, rebuild.from_block, fact_tables, derive
                    )
            async with session(self._pool) as connection:
                now = await orders.find(connection, rebuild.id)
            if now is None or now.state != "copying":
                return
        async with transaction(self._pool) as connection:
            await orders.advance(connection, rebuild.id, "copying", "filling")

    async def _swap_when_ready(
        self, rebuild: Rebuild, pool: Pool, filling: "asyncio.Task[None]"
    ) -> bool:
        busy = self._policy.busy_seconds
        is_analyzed = False
        cursor: int | None = None
        while True:
            if filling.done():
                filling.result()  # raises Unavailable at the end of a term
                raise LaneLost("The fresh tables are not filled any more")
            async with session(self._pool) as connection:
                now = await orders.find(connection, rebuild.id)
                heights = await swap.heights(connection)
            if now is None or not await self._may_fill(now):
                return False
            if heights is None:
                raise LaneLost("The fresh tables are gone")
            fresh, live = heights
            telemetry.INDEX_REBUILD_BLOCK.set(fresh.cursor_number)
            await self._forget_error(now, fresh.cursor_number, cursor)
            cursor = fresh.cursor_number
            if fresh.is_stopped:
                await self._resume(rebuild, pool)
            elif may_swap(fresh, live):
                if not is_analyzed:
                    await self._analyze()
                    is_analyzed = True
                    continue
                try:
                    if await self._swap(rebuild):
                        return True
                except TablesBusy as error:
                    log.warning("rebuild.tables_busy", again_after=busy)
                    await self._note(rebuild, str(error))
                    await asyncio.sleep(busy)
                    busy = min(2 * busy, self._policy.busiest_seconds)
                    continue
            await self._blocks.wait(self._policy.poll_seconds)

    async def _may_fill(self, rebuild: Rebuild) -> bool:
        """False once the tables begin again or end, also because a newer version has upgraded the
        schema.
        """
        return rebuild.state in ("copying", "filling") and await self._fits(rebuild)

    async def _forget_error(self, rebuild: Rebuild, cursor: int, before: int | None) -> None:
        """An error is over once the cursor of the fresh tables moves on."""
        if rebuild.error is not None and before is not None and cursor > before:
            await self._note(rebuild, None)

    async def _resume(self, rebuild: Rebuild, pool: Pool) -> None:
        """Let the fresh index go on after a pause, as the nodes may have recovered."""
        async with session(pool) as connection:
            reason = await chains.stopped_reason(connection, self._chain.chain_id)
        await self._note(rebuild, f"The fresh tables are stopped. {reason}")
        await asyncio.sleep(self._policy.resume_seconds)
        async with session(pool) as connection:
            await chains.resume(connection, self._chain.chain_id)

    async def _analyze(self) -> None:
        async with session(self._pool) as connection:
            for table in self._tables:
                await connection.execute(f"ANALYZE {fresh_tables.FRESH}.{table}", timeout=600)

    async def _swap(self, rebuild: Rebuild) -> bool:
        with telemetry.timed(telemetry.INDEX_SWAP_SECONDS):
            async with transaction(self._pool) as connection:
                has_swapped = await swap.swap(connection, rebuild.id, self._tables)
        if has_swapped:
            log.warning("rebuild.swapped", rebuild=rebuild.id)
        return has_swapped

    # After the swap

    async def _reconcile(self, rebuild: Rebuild) -> None:
        for step in (reconciling.record_mints, reconciling.clear_lost_mints):
            more = True
            while more:
                async with transaction(self._pool) as connection:
                    more = await step(connection, rebuild.id)
        above: int | None = -1
        while above is not None:
            async with transaction(self._pool) as connection:
                above = await reconciling.mark_lost_payments(connection, above)

    async def _drop_replaced(self, rebuild: Rebuild) -> None:
        more = True
        while more:
            async with transaction(self._pool) as connection:
                more = await fresh_tables.drop_replaced(connection)
        await self._end(rebuild)

    async def _end(self, rebuild: Rebuild) -> None:
        """End a rebuild, unless another process has ended it: this one may have been frozen."""
        async with transaction(self._pool) as connection:
            if await orders.end(connection, rebuild.id):
                await fresh_tables.drop_fresh(connection)


@contextmanager
def _kept_facts_blamed(rebuild: Rebuild) -> Iterator[None]:
    """Raises ImpossibleFact with what a person can do."""
    try:
        with refused_as_impossible():
            yield
    except ImpossibleFact as error:
        raise ImpossibleFact(
            f"The facts below block {rebuild.from_block}, which the rebuild keeps, contradict each "
            f"other: {error.message}. {_REPAIR_KEPT}"
        ) from error


async def _revision(connection: database.Connection) -> str:
    revision: str = await connection.fetchval("SELECT version_num FROM alembic_version")
    return revision
