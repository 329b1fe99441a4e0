"""The state of the tables for an operator: chain, lanes, leases, queues and relays in flight.

Cheap however large the tables grow, since it is read every second: only open rows are read, and the
count of minted rewards becomes an estimate once it is large.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from ltzd.rules.conditions.facts import ChainFacts
from ltzd.rules.event_handler.event_ids import first_id
from ltzd.store import background_migrations
from ltzd.store.background_migrations import BackgroundMigration
from ltzd.store.cluster import oldest_reward_seconds, read_chain
from ltzd.store.database import Connection
from ltzd.store.indexer.rebuild import orders
from ltzd.store.indexer.rebuild.orders import RebuildProgress
from ltzd.store.operator import leases, patience, wallet_work
from ltzd.store.operator.lanes import SHOWN_FOR_SECONDS
from ltzd.store.operator.leases import LeaseFacts
from ltzd.values import Address

ESTIMATE_ABOVE = 500_000
"""Above this number the minted rewards are estimated: to count them takes tens of milliseconds."""
COUNTED_AT_MOST = 1_000_000
"""Queued rewards and queued relays are counted up to this number."""
_DAY_SECONDS = 86_400
_BYTES_OF_A_MINT = 200
"""The size of a row, from which the rows are estimated while PostgreSQL has no estimate."""


class LaneFacts(msgspec.Struct, frozen=True):
    """`oldest_seconds` is the age of the oldest unsettled intent, or None without such an intent.

    `paused_for` is why the lane signs nothing, as reported by its holder within the last minute.
    `by_hand_reason` is the reason of a person who has paused it.
    """

    wallet: Address
    kind: str
    epoch: int
    next_nonce: int
    signed: int
    published: int
    mined: int
    oldest_seconds: float | None
    paused_for: str | None = None
    paused_since: datetime | None = None
    by_hand_reason: str | None = None

    @property
    def in_flight(self) -> int:
        return self.signed + self.published + self.mined


class RewardFacts(msgspec.Struct, frozen=True):
    """`in_flight` counts rewards that have an unsettled transaction and no known mint.

    `above_limit` counts queued rewards above the mint limit's capacity. They wait until it is
    raised, and `oldest_queued_seconds` leaves them out. `may_wait` counts queued rewards whose
    brand lets them wait for a cheaper block now; their ages count from the end of that wait.
    """

    queued: int
    oldest_queued_seconds: float | None
    in_flight: int
    minted: int
    minted_is_estimate: bool
    above_limit: int = 0
    may_wait: int = 0


class RelayFacts(msgspec.Struct, frozen=True):
    """`queued` relays are not signed yet; `in_flight` relays are signed and not mined."""

    queued: int
    oldest_queued_seconds: float | None
    in_flight: int


class StatusFacts(msgspec.Struct, frozen=True):
    chain: ChainFacts | None
    lanes: tuple[LaneFacts, ...]
    rewards: RewardFacts
    relays: RelayFacts
    events_last_minute: int
    leases: tuple[LeaseFacts, ...] = ()
    unserved: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How many wallets that are not retired no process serves, by kind."""
    migrations: tuple[BackgroundMigration, ...] = ()
    """Background migrations that are not finished."""
    rebuild: RebuildProgress | None = None
    """The open rebuild of the index."""


async def read_status(connection: Connection) -> StatusFacts:
    return StatusFacts(
        chain=await read_chain(connection, rated=True),
        lanes=await _lanes(connection),
        rewards=await _rewards(connection),
        relays=await _relays(connection),
        events_last_minute=await _events_last_minute(connection),
        leases=await leases.list_all(connection),
        unserved=await wallet_work.count_unserved(connection),
        migrations=await background_migrations.list_pending(connection),
        rebuild=await orders.progress(connection),
    )


async def _lanes(connection: Connection) -> tuple[LaneFacts, ...]:
    rows = await connection.fetch(
        """
        SELECT lanes.wallet, lanes.kind, lanes.epoch, lanes.next_nonce,
               count(*) FILTER (WHERE open.state = 'signed'),
               count(*) FILTER (WHERE open.state = 'published'),
               count(*) FILTER (WHERE open.state = 'mined'),
               extract(epoch FROM now() - min(open.created_at))::float8,
               CASE WHEN lanes.paused_seen_at > now() - make_interval(secs => $1)
                    THEN lanes.paused_for END,
               CASE WHEN lanes.paused_seen_at > now() - make_interval(secs => $1)
                    THEN lanes.paused_since END,
               registered.pause_reason
          FROM lanes
          LEFT JOIN operator_wallets AS registered USING (chain_id, wallet)
          LEFT JOIN transactions AS open
            ON open.chain_id = lanes.chain_id AND open.wallet = lanes.wallet
           AND open.state IN ('signed', 'published', 'mined')
         GROUP BY lanes.chain_id, lanes.wallet, registered.pause_reason
         ORDER BY lanes.kind, lanes.wallet
        """,
        SHOWN_FOR_SECONDS,
    )
    return tuple(LaneFacts(*row) for row in rows)


async def _rewards(connection: Connection) -> RewardFacts:
    waiting = await connection.fetchrow(
        """
        SELECT count(*), count(*) FILTER (WHERE above_limit)
          FROM (SELECT above_limit
                  FROM rewards
                 WHERE transaction_id IS NULL AND failed_at IS NULL AND mint_block_hash IS NULL
                 LIMIT $1) AS counted
        """,
        COUNTED_AT_MOST,
    )
    assert waiting is not None
    seconds = await oldest_reward_seconds(connection)
    may_wait = await patience.count_waiting(connection, COUNTED_AT_MOST)
    in_flight: int = await connection.fetchval(
        """
        SELECT coalesce(sum(rewards.count), 0)::bigint
          FROM transactions AS open
         CROSS JOIN LATERAL (  -- a join might read the rewards of all transactions
               SELECT count(*)
                 FROM rewards
                WHERE transaction_id = open.id AND mint_block_hash IS NULL) AS rewards
         WHERE open.state IN ('signed', 'published', 'mined')
        """
    )
    minted, is_estimate = await _minted(connection)
    return RewardFacts(waiting[0], seconds, in_flight, minted, is_estimate, waiting[1], may_wait)


async def _relays(connection: Connection) -> RelayFacts:
    row = await connection.fetchrow(
        """
        SELECT count(*) FILTER (WHERE state = 'queued'),
               extract(epoch FROM now() - min(created_at) FILTER (WHERE state = 'queued'))::float8,
               count(*) FILTER (WHERE state = 'sent')
          FROM (SELECT state, created_at FROM relays
                 WHERE state IN ('queued', 'sent') LIMIT $1) AS counted
        """,
        COUNTED_AT_MOST,
    )
    assert row is not None
    return RelayFacts(*row)


async def _minted(connection: Connection) -> tuple[int, bool]:
    """The number of minted rewards, and whether it is an estimate."""
    estimate: float = await connection.fetchval(
        """
        SELECT coalesce(sum(CASE WHEN reltuples > 0 THEN reltuples
                                 ELSE pg_relation_size(oid) / $1::int END), 0)::float8
          FROM pg_class
         WHERE relkind = 'r'
           AND oid = ANY(ARRAY(SELECT inhrelid FROM pg_inherits WHERE inhparent = 'mints'::regclass)
                         || 'mints'::regclass::oid)
        """,
        _BYTES_OF_A_MINT,
    )
    if estimate > ESTIMATE_ABOVE:
        return int(estimate), True
    exact: int = await connection.fetchval("SELECT count(*) FROM mints")
    return exact, False


async def _events_last_minute(connection: Connection) -> int:
    """Count brand by brand, because events are indexed by brand, in the partitions of a day.

    An event's id has the time of the process that made it, which may differ from the database's.
    """
    seconds: int = await connection.fetchval("SELECT extract(epoch FROM now())::bigint")
    count: int = await connection.fetchval(
        """
        SELECT coalesce(sum(recent.count), 0)::bigint
          FROM brands
          CROSS JOIN LATERAL (
            SELECT count(*) FROM events
             WHERE events.brand_id = brands.id
               AND events.created_at > now() - interval '1 minute'
               AND events.id >= $1
          ) AS recent
        """,
        first_id(seconds - _DAY_SECONDS),
    )
    return count
