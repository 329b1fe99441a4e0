"""Shows people what the operator's wallets do now: their lanes, processes and open work."""

from datetime import datetime

import msgspec

from ltzd.store.database import Connection
from ltzd.store.operator import transactions, wallets
from ltzd.store.operator.lanes import SHOWN_FOR_SECONDS
from ltzd.store.operator.leases import lane_lease_sql
from ltzd.store.operator.wallets import OperatorWallet, WalletState
from ltzd.values import Address


class WalletWork(msgspec.Struct, frozen=True):
    """`process` holds the wallet now: its host and process id, or None if no process does.

    `served_at` is the lane's last report, `next_nonce` is None for a wallet without a lane.
    `paused_for` is why the lane signs nothing new, as it reported within the last minute.
    `oldest_seconds` is the age of the oldest transaction that is not final.
    """

    row: OperatorWallet
    process: str | None
    served_at: datetime | None
    next_nonce: int | None
    paused_for: str | None
    paused_since: datetime | None
    signed: int
    published: int
    mined: int
    oldest_seconds: float | None

    @property
    def in_flight(self) -> int:
        """Transactions that are not final."""
        return self.signed + self.published + self.mined

    @property
    def is_drained(self) -> bool:
        """Whether a draining wallet has finished: its lane knows of the drain, if it is served."""
        is_known = self.process is None or self.paused_for is not None
        return self.row.state is WalletState.DRAINING and self.in_flight == 0 and is_known


async def list_work(connection: Connection, chain_id: int) -> list[WalletWork]:
    """All wallets of the chain, retired ones too, the oldest first."""
    rows = await wallets.list_wallets(connection, chain_id)
    records = await connection.fetch(
        f"""
        SELECT w.wallet, leases.process, lanes.served_at, lanes.next_nonce,
               CASE WHEN lanes.paused_seen_at > now() - make_interval(secs => $2)
                    THEN lanes.paused_for END,
               CASE WHEN lanes.paused_seen_at > now() - make_interval(secs => $2)
                    THEN lanes.paused_since END,
               count(*) FILTER (WHERE open.state = 'signed'),
               count(*) FILTER (WHERE open.state = 'published'),
               count(*) FILTER (WHERE open.state = 'mined'),
               extract(epoch FROM now() - min(open.created_at))::float8
          FROM operator_wallets w
          LEFT JOIN lanes ON lanes.chain_id = w.chain_id AND lanes.wallet = w.wallet
          LEFT JOIN leases
            ON leases.name = {lane_lease_sql("w")}
           AND leases.expires_at > now()
          LEFT JOIN transactions AS open
            ON open.chain_id = w.chain_id AND open.wallet = w.wallet
           AND open.state IN ('signed', 'published', 'mined')
         WHERE w.chain_id = $1
         GROUP BY w.chain_id, w.wallet, leases.name, lanes.chain_id, lanes.wallet
        """,  # noqa: S608
        chain_id,
        SHOWN_FOR_SECONDS,
    )
    work = {Address(record[0]): tuple(record)[1:] for record in records}
    return [WalletWork(row, *work[row.wallet]) for row in rows if row.wallet in work]


async def find_work(connection: Connection, chain_id: int, wallet: Address) -> WalletWork | None:
    for work in await list_work(connection, chain_id):
        if work.row.wallet == wallet:
            return work
    return None


async def count_unserved(connection: Connection) -> dict[str, int]:
    """How many wallets no process holds, by kind; retired wallets do not count."""
    rows = await connection.fetch(
        f"""
        SELECT w.kind, count(*) FILTER (WHERE leases.name IS NULL)
          FROM operator_wallets w
          LEFT JOIN leases
            ON leases.name = {lane_lease_sql("w")}
           AND leases.expires_at > now()
         WHERE w.state <> 'retired'
         GROUP BY w.kind
        """  # noqa: S608
    )
    return {row[0]: row[1] for row in rows}


async def retire(connection: Connection, chain_id: int, wallet: Address, reason: str) -> int:
    """Retire the wallet, and return how many of its transactions are not final.

    Call it in a database transaction, and roll back to leave the wallet as it is. The epoch counts
    up, so that a lane that does not know yet stores nothing afterwards.
    """
    await connection.execute(
        "UPDATE lanes SET epoch = epoch + 1 WHERE chain_id = $1 AND wallet = $2", chain_id, wallet
    )
    await wallets.set_state(connection, chain_id, wallet, WalletState.RETIRED, reason)
    return await transactions.count_open(connection, chain_id, wallet)
