"""Lanes as a person looks at them: `ltzd lane list`, and what `pause` and `resume` change."""

from datetime import datetime

import asyncpg
import msgspec

from ltzd.store.database import Connection
from ltzd.store.operator.lanes import SHOWN_FOR_SECONDS
from ltzd.store.operator.leases import lane_lease_sql
from ltzd.store.operator.wallets import WalletState
from ltzd.values import Address


class LaneView(msgspec.Struct, frozen=True):
    """A wallet and its lane. A wallet that no process has served yet has no epoch and no nonce.

    `holder` is the process that serves the lane now, None if no process does. `paused_for` is the
    reason of the holder; `by_hand_since` and `by_hand_reason` are a person's pause, in force or
    not. `oldest_seconds` is the age of the oldest transaction without an outcome.
    """

    chain_id: int
    wallet: Address
    kind: str
    state: WalletState
    epoch: int | None
    next_nonce: int | None
    holder: str | None
    paused_for: str | None
    paused_since: datetime | None
    by_hand_since: datetime | None
    by_hand_reason: str | None
    unmined: int
    mined: int
    oldest: int | None
    oldest_seconds: float | None

    @property
    def is_by_hand(self) -> bool:
        return self.by_hand_since is not None


async def list_lanes(
    connection: Connection, *, kind: str | None = None, wallet: Address | None = None
) -> list[LaneView]:
    """The wallets that are served or in the registry.

    `kind` and `wallet`, if given, leave out all others.
    """
    rows = await connection.fetch(
        f"""
        WITH named AS (
          SELECT chain_id, wallet FROM lanes
           UNION
          SELECT chain_id, wallet FROM operator_wallets
        )
        SELECT named.chain_id, named.wallet,
               coalesce(registered.kind, lanes.kind) AS kind,
               coalesce(registered.state, 'active') AS state,
               lanes.epoch, lanes.next_nonce, leases.process AS holder,
               CASE WHEN lanes.paused_seen_at > now() - make_interval(secs => $3)
                    THEN lanes.paused_for END AS paused_for,
               CASE WHEN lanes.paused_seen_at > now() - make_interval(secs => $3)
                    THEN lanes.paused_since END AS paused_since,
               registered.paused_at AS by_hand_since,
               registered.pause_reason AS by_hand_reason,
               open.unmined, open.mined, open.oldest, open.oldest_seconds
          FROM named
          LEFT JOIN lanes USING (chain_id, wallet)
          LEFT JOIN operator_wallets registered USING (chain_id, wallet)
          LEFT JOIN leases
            ON leases.name = {lane_lease_sql("named")}
           AND leases.expires_at > now()
         CROSS JOIN LATERAL (
               SELECT count(*) FILTER (WHERE t.state <> 'mined') AS unmined,
                      count(*) FILTER (WHERE t.state = 'mined') AS mined,
                      (array_agg(t.id ORDER BY t.nonce))[1] AS oldest,
                      extract(epoch FROM now() - min(t.created_at))::float8 AS oldest_seconds
                 FROM transactions t
                WHERE t.chain_id = named.chain_id AND t.wallet = named.wallet
                  AND t.state IN ('signed', 'published', 'mined')) open
         WHERE ($1::text IS NULL OR coalesce(registered.kind, lanes.kind) = $1)
           AND ($2::bytea IS NULL OR named.wallet = $2)
         ORDER BY kind, named.wallet
        """,  # noqa: S608
        kind,
        wallet,
        SHOWN_FOR_SECONDS,
    )
    return list(map(_view, rows))


def _view(row: asyncpg.Record) -> LaneView:
    return LaneView(
        **dict(row) | {"wallet": Address(row["wallet"]), "state": WalletState(row["state"])}
    )
