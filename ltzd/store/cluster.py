"""Reads the facts that conditions are judged from, with a bound on each query.

A backlog of any size must not keep `/readyz` from its answer.
"""

from msgspec.structs import replace

from ltzd.rules.conditions.facts import ChainFacts, ClusterFacts, QueueFacts, WalletFacts
from ltzd.rules.indexer.block_times import BlockTimes, HeadTime
from ltzd.store import processes
from ltzd.store.brands.patience import PATIENCE_SECONDS
from ltzd.store.database import Connection
from ltzd.store.indexer.rebuild.orders import WAITS_FOR_MIGRATIONS
from ltzd.store.operator import leases
from ltzd.store.operator.lanes import SHOWN_FOR_SECONDS
from ltzd.store.webhooks import records as webhook_records
from ltzd.values import Address

_MEASURED_BLOCKS = 32
"""The number of newest blocks whose times give the block time."""
_FAR_BLOCKS = 128
"""`blocks_per_second` is measured while the cursor is further behind the head than this."""
_RATED_BLOCKS = 20_000
_RATED_SECONDS = 60.0
_MOST_WALLETS = 1_000
_MOST_COUNTED = 10_000
_MOST_ENDPOINTS = 100
_OLDEST_READ = 100
"""The number of a brand's oldest rewards that are read: some may be minted elsewhere already."""


async def read_cluster(connection: Connection) -> ClusterFacts:
    held = [lease for lease in await leases.list_all(connection) if lease.is_held]
    rebuild, rebuild_error = await _rebuild(connection)
    migrations = await _migrations(connection)
    return ClusterFacts(
        chain=await read_chain(connection),
        processes=await processes.list_all(connection),
        lease_holders={lease.name: lease.process for lease in held},
        wallets=await _wallets(connection),
        queues=await _queues(connection),
        rebuild=rebuild,
        rebuild_error=rebuild_error,
        migrations=tuple(migrations),
        migration_errors={name: error for name, error in migrations.items() if error is not None},
    )


async def read_chain(connection: Connection, *, rated: bool = False) -> ChainFacts | None:
    """Return None while no chain is followed. `rated` measures `blocks_per_second`, too."""
    row = await connection.fetchrow(
        """
        SELECT chain_id, ltz, head_number, cursor_number, final_number,
               extract(epoch FROM now() - updated_at)::float8, stopped_reason, stopped_at,
               audited_number, first_block
          FROM chains
         LIMIT 1
        """
    )
    if row is None:
        return None
    *columns, reason, stopped_at, audited, first_block = row
    facts = ChainFacts(*columns)
    is_far = facts.head_number - facts.cursor_number > _FAR_BLOCKS
    return replace(
        facts,
        first_block=first_block,
        blocks_per_second=await _blocks_per_second(connection) if rated and is_far else None,
        block_seconds=await _block_seconds(connection),
        stopped_reason=reason,
        stopped_at=stopped_at,
        audited_number=audited,
    )


async def _blocks_per_second(connection: Connection) -> float | None:
    """The rate of the last minute's commits, from the blocks that they have written."""
    rate: float | None = await connection.fetchval(
        """
        WITH recent AS (
          SELECT number, seen_at
            FROM blocks
           WHERE number > (SELECT cursor_number FROM chains) - $1
             AND seen_at > now() - make_interval(secs => $2)
        )
        SELECT ((max(number) - min(number))
                / nullif(extract(epoch FROM max(seen_at) - min(seen_at)), 0))::float8
          FROM recent
        """,
        _RATED_BLOCKS,
        _RATED_SECONDS,
    )
    return rate


async def _block_seconds(connection: Connection) -> float | None:
    rows = await connection.fetch(
        """
        SELECT number, extract(epoch FROM mined_at)::bigint, extract(epoch FROM seen_at)::float8
          FROM blocks
         ORDER BY number DESC
         LIMIT $1
        """,
        _MEASURED_BLOCKS,
    )
    return BlockTimes(tuple(HeadTime(*row) for row in reversed(rows))).seconds()


async def _wallets(connection: Connection) -> tuple[WalletFacts, ...]:
    """A retired wallet is returned only if its last transactions need a person."""
    rows = await connection.fetch(
        f"""
        WITH recent AS (
          SELECT chain_id, wallet, paused_for, paused_since FROM lanes
           WHERE paused_seen_at > now() - make_interval(secs => $1)
        )
        SELECT w.wallet, w.kind, leases.process, recent.paused_for,
               extract(epoch FROM now() - recent.paused_since)::float8, w.pause_reason
          FROM operator_wallets w
          LEFT JOIN recent ON recent.chain_id = w.chain_id AND recent.wallet = w.wallet
          LEFT JOIN leases
            ON leases.name = {leases.lane_lease_sql("w")}
           AND leases.expires_at > now()
         WHERE w.state <> 'retired' OR recent.paused_for = 'key_gone'
         ORDER BY w.kind, w.added_at, w.wallet
         LIMIT $2
        """,  # noqa: S608
        SHOWN_FOR_SECONDS,
        _MOST_WALLETS,
    )
    return tuple(WalletFacts(Address(row[0]), *row[1:]) for row in rows)


async def _queues(connection: Connection) -> QueueFacts:
    row = await connection.fetchrow(
        """
        SELECT extract(epoch FROM now() - (SELECT created_at FROM relays WHERE state = 'queued'
                                            ORDER BY id LIMIT 1))::float8,
               (SELECT count(*) FILTER (WHERE num_nulls(transaction_id, failed_at,
                                                        mint_block_hash) = 3)
                  FROM (SELECT transaction_id, failed_at, mint_block_hash
                          FROM rewards WHERE above_limit LIMIT $1) AS counted)
        """,
        _MOST_COUNTED,
    )
    assert row is not None
    endpoints = await webhook_records.disabled_endpoints(connection, None)
    return QueueFacts(
        reward_seconds=await oldest_reward_seconds(connection),
        rewards_above_limit=row[1],
        relay_seconds=row[0],
        webhook_seconds=await webhook_records.overdue_seconds(connection),
        disabled_endpoints=tuple(
            (endpoint.brand_id, endpoint.reason) for endpoint in endpoints[:_MOST_ENDPOINTS]
        ),
    )


async def oldest_reward_seconds(connection: Connection) -> float | None:
    """Read the head of the queue of each brand that is not paused, and of the payments.

    The age of a patient brand's rewards counts from the end of their wait for a cheaper block.
    """
    # The conditions are those of rewards_mintable_by_brand and rewards_mintable_payments.
    seconds: float | None = await connection.fetchval(
        f"""
        SELECT extract(epoch FROM now() - least(
                 (SELECT min(oldest.created_at + make_interval(secs => {PATIENCE_SECONDS}))
                    FROM brands
                   CROSS JOIN LATERAL (
                         SELECT min(created_at) FILTER (WHERE mint_block_hash IS NULL) AS created_at
                           FROM (SELECT created_at, mint_block_hash
                                   FROM rewards
                                  WHERE num_nulls(transaction_id, failed_at) = 2
                                    AND NOT above_limit AND kind <> 2
                                    AND brand_id BETWEEN brands.id AND brands.id
                                  ORDER BY brand_id, position
                                  LIMIT $1) AS head) AS oldest
                   WHERE brands.paused_at IS NULL),
                 (SELECT min(created_at) FILTER (WHERE mint_block_hash IS NULL)
                    FROM (SELECT created_at, mint_block_hash
                            FROM rewards
                           WHERE num_nulls(transaction_id, failed_at) = 2
                             AND NOT above_limit AND kind = 2
                           ORDER BY position
                           LIMIT $1) AS head)))::float8
        """,  # noqa: S608
        _OLDEST_READ,
    )
    # Below 0: all of them may still wait.
    return None if seconds is None else max(0.0, seconds)


async def _rebuild(connection: Connection) -> tuple[str | None, str | None]:
    """The state and the error of the open rebuild. To wait for migrations is no error."""
    row = await connection.fetchrow("SELECT state, error FROM rebuilds WHERE ended_at IS NULL")
    if row is None:
        return None, None
    return row["state"], None if row["error"] == WAITS_FOR_MIGRATIONS else row["error"]


async def _migrations(connection: Connection) -> dict[str, str | None]:
    """The error of each unfinished background migration, or None while it has none."""
    rows = await connection.fetch(
        """
        SELECT name, error FROM background_migrations
         WHERE finished_at IS NULL ORDER BY name LIMIT 100
        """
    )
    return {row["name"]: row["error"] for row in rows}
