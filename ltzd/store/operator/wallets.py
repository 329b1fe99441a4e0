"""The operator's wallets as people want them: added, drained, retired and paused by commands.

A change is in force within a second: it wakes every process that serves lanes (`WALLETS`).
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

import asyncpg
import msgspec

from ltzd.store.database import Connection
from ltzd.store.operator.lanes import SHOWN_FOR_SECONDS
from ltzd.store.wakeups import WALLETS, notify
from ltzd.values import Address


class WalletState(Enum):
    ACTIVE = "active"
    DRAINING = "draining"
    """The wallet signs no new work, and finishes what it has begun."""
    RETIRED = "retired"
    """The wallet signs nothing; what it has signed is watched until it is final."""


class OperatorWallet(msgspec.Struct, frozen=True):
    """`signer` tells where the key is, never the key; None if the settings name it."""

    chain_id: int
    wallet: Address
    kind: str
    state: WalletState
    reason: str | None
    signer: Mapping[str, Any] | None
    paused_at: datetime | None
    pause_reason: str | None
    added_at: datetime
    state_since: datetime


async def list_wallets(connection: Connection, chain_id: int) -> list[OperatorWallet]:
    """All wallets of the chain, retired ones too, the oldest first."""
    rows = await connection.fetch(
        "SELECT * FROM operator_wallets WHERE chain_id = $1 ORDER BY added_at, wallet", chain_id
    )
    return list(map(_wallet, rows))


async def count_served(connection: Connection) -> int:
    """The number of wallets that lanes may serve: all but retired ones."""
    count: int = await connection.fetchval(
        "SELECT count(*) FROM operator_wallets WHERE state <> 'retired'"
    )
    return count


async def find(connection: Connection, chain_id: int, wallet: Address) -> OperatorWallet | None:
    row = await connection.fetchrow(
        "SELECT * FROM operator_wallets WHERE chain_id = $1 AND wallet = $2", chain_id, wallet
    )
    return None if row is None else _wallet(row)


async def find_with_requests(
    connection: Connection, chain_id: int, wallet: Address
) -> tuple[OperatorWallet | None, bool]:
    """The wallet's row, and whether a person asks something of one of its transactions."""
    row = await connection.fetchrow(
        """
        SELECT w.*,
               EXISTS (SELECT
                         FROM transaction_requests q
                        WHERE q.handled_at IS NULL
                          AND (SELECT t.chain_id = $1 AND t.wallet = $2
                                 FROM transactions t
                                WHERE t.id = q.transaction_id)) AS has_requests
          FROM (SELECT) AS one
          LEFT JOIN operator_wallets w ON w.chain_id = $1 AND w.wallet = $2
        """,
        chain_id,
        wallet,
    )
    return None if row["wallet"] is None else _wallet(row), row["has_requests"]


WITHOUT_ROLE = "role"
"""A relay lane's reason to wait: its wallet lacks a role on chain, so its relays would revert."""


class ServedWallet(msgspec.Struct, frozen=True):
    """A wallet whose lane was served within the last minute, by any process.

    A draining wallet signs what no other wallet can sign, and nothing else. A person has paused the
    lane of a paused wallet. The lane of a wallet that lacks a role on chain signs nothing.
    """

    wallet: Address
    is_draining: bool = False
    is_paused: bool = False
    lacks_role: bool = False


async def list_served(connection: Connection, chain_id: int, kind: str) -> list[ServedWallet]:
    """The served wallets that are not retired, the busiest first."""
    rows = await connection.fetch(
        """
        SELECT l.wallet, coalesce(w.state, 'active') AS state,
               w.paused_at IS NOT NULL AS is_paused,
               l.paused_for IS NOT DISTINCT FROM $4 AS lacks_role
          FROM lanes l
          LEFT JOIN operator_wallets w ON w.chain_id = l.chain_id AND w.wallet = l.wallet
         WHERE l.chain_id = $1 AND l.kind = $2
           AND l.served_at > now() - make_interval(secs => $3)
           AND w.state IS DISTINCT FROM 'retired'
         ORDER BY l.next_nonce DESC, l.wallet
        """,
        chain_id,
        kind,
        SHOWN_FOR_SECONDS,
        WITHOUT_ROLE,
    )
    return [
        ServedWallet(
            Address(row["wallet"]),
            is_draining=row["state"] == WalletState.DRAINING.value,
            is_paused=row["is_paused"],
            lacks_role=row["lacks_role"],
        )
        for row in rows
    ]


async def retired_with_work(connection: Connection, chain_id: int) -> list[OperatorWallet]:
    """Retired wallets that still have to be watched: not all that they signed is final.

    Queued relays that name the wallet count, too: no other wallet may send them.
    """
    rows = await connection.fetch(
        """
        SELECT w.*
          FROM operator_wallets w
         WHERE w.chain_id = $1 AND w.state = 'retired'
           AND (EXISTS (SELECT FROM transactions t
                         WHERE t.chain_id = w.chain_id AND t.wallet = w.wallet
                           AND t.state IN ('signed', 'published', 'mined'))
                OR EXISTS (SELECT FROM relays r WHERE r.state = 'queued' AND r.wallet = w.wallet))
         ORDER BY w.added_at, w.wallet
        """,
        chain_id,
    )
    return list(map(_wallet, rows))


async def add(
    connection: Connection,
    chain_id: int,
    wallet: Address,
    kind: str,
    signer: Mapping[str, Any] | None = None,
) -> bool:
    """Insert a wallet; returns False, and changes nothing, if it is there already."""
    is_new: bool | None = await connection.fetchval(
        """
        INSERT INTO operator_wallets (chain_id, wallet, kind, signer)
        VALUES ($1, $2, $3, $4)
            ON CONFLICT DO NOTHING
     RETURNING true
        """,
        chain_id,
        wallet,
        kind,
        signer,
    )
    if is_new:
        await notify(connection, WALLETS)
    return bool(is_new)


async def set_signer(
    connection: Connection, chain_id: int, wallet: Address, signer: Mapping[str, Any]
) -> None:
    """Replace the reference of the wallet's signer; its lane is opened again with the new one."""
    await connection.execute(
        "UPDATE operator_wallets SET signer = $3 WHERE chain_id = $1 AND wallet = $2",
        chain_id,
        wallet,
        signer,
    )
    await notify(connection, WALLETS)


async def set_state(
    connection: Connection,
    chain_id: int,
    wallet: Address,
    state: WalletState,
    reason: str | None = None,
) -> bool:
    """Return False, and change nothing, if the wallet is unknown, or retired: it stays so."""
    is_changed: bool | None = await connection.fetchval(
        """
        UPDATE operator_wallets
           SET state = $3, reason = $4,
               state_since = CASE WHEN state = $3 THEN state_since ELSE now() END
         WHERE chain_id = $1 AND wallet = $2 AND (state <> 'retired' OR $3 = 'retired')
     RETURNING true
        """,
        chain_id,
        wallet,
        state.value,
        reason,
    )
    await notify(connection, WALLETS)
    return bool(is_changed)


async def set_paused(
    connection: Connection, chain_id: int, wallet: Address, reason: str | None
) -> bool:
    """Pause a lane for a person's reason, or resume it (None); returns False if it is unknown."""
    is_known: bool | None = await connection.fetchval(
        """
        UPDATE operator_wallets
           SET pause_reason = $3::text,
               paused_at = CASE WHEN $3::text IS NULL THEN NULL ELSE coalesce(paused_at, now()) END
         WHERE chain_id = $1 AND wallet = $2
     RETURNING true
        """,
        chain_id,
        wallet,
        reason,
    )
    await notify(connection, WALLETS)
    return bool(is_known)


def _wallet(row: asyncpg.Record) -> OperatorWallet:
    return OperatorWallet(
        chain_id=row["chain_id"],
        wallet=Address(row["wallet"]),
        kind=row["kind"],
        state=WalletState(row["state"]),
        reason=row["reason"],
        signer=row["signer"],
        paused_at=row["paused_at"],
        pause_reason=row["pause_reason"],
        added_at=row["added_at"],
        state_since=row["state_since"],
    )
