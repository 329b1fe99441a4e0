"""Signs further attempts of transactions in flight without holding up the monitor's rounds.

A remote signer may take a tenth of a second or may hang. A round waits a moment for its signatures;
a later round gets the signatures that come after that. The round that gets a signature stores the
attempt, so what it knows of the transaction is current.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

import msgspec

from ltzd.errors import SignerUnavailable
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.signing import TransactionCall, TransactionSigner, Unsendable
from ltzd.rules.operator.fees import Fees
from ltzd.store.database import Connection
from ltzd.store.operator import transactions
from ltzd.store.operator.transactions import Attempt, OpenTransaction
from ltzd.store.wakeups import Wakeup

_PATIENCE_SECONDS = 0.25
"""The longest time that one round waits. A local key needs none of it."""


async def further_call(
    connection: Connection, signer: TransactionSigner, tx: OpenTransaction
) -> TransactionCall:
    """The call of another attempt: the intent's call, or the self-transfer that cancels it."""
    if tx.tx.is_abandoned:
        return signer.self_transfer()
    to, data = await transactions.read_call(connection, tx.id)
    return TransactionCall(to, data, tx.gas_limit, value_wei=tx.value_wei)


Store = Callable[[OpenTransaction, Attempt], Awaitable[None]]
"""Stores an attempt of a transaction, given as it is now."""


class _Signing(msgspec.Struct, frozen=True):
    tx: OpenTransaction
    task: asyncio.Task[Attempt]
    reservation: AbstractContextManager[None]


class AttemptSigning:
    """At most one signature is under way for each nonce.

    Its cost above that of the transaction in flight is reserved until the attempt is stored.
    `rounds` is notified when a late signature has come.
    """

    def __init__(
        self, in_flight: InFlightTransactions, signer: TransactionSigner, rounds: Wakeup
    ) -> None:
        self._in_flight = in_flight
        self._signer = signer
        self._rounds = rounds
        self._under_way: dict[int, _Signing] = {}
        self._late: set[int] = set()

    def is_under_way(self, tx: OpenTransaction) -> bool:
        return tx.nonce in self._under_way

    @property
    def is_late(self) -> bool:
        """Whether the last `finish` left a signature under way."""
        return bool(self._late)

    def begin(self, tx: OpenTransaction, call: TransactionCall, fees: Fees) -> None:
        """Ask for the signature; the caller has just checked the transaction's cost."""
        reserved_wei = self._in_flight.reserved_wei(beside=tx)
        more_wei = call.max_cost_wei(fees, self._signer.l1_costs) - tx.max_cost_wei
        reservation = self._in_flight.reserving(max(0, more_wei))
        reservation.__enter__()
        task = self._signer.spawn(self._signer.sign(tx.nonce, call, fees, reserved_wei))
        self._under_way[tx.nonce] = _Signing(tx, task, reservation)

    async def finish(self, store: Store) -> tuple[int, list[OpenTransaction]]:
        """Wait a moment for new signatures under way, and store the attempts that are signed.

        Returns how many were stored, and the transactions whose signer failed. A signature is
        dropped if its transaction was settled, or has another attempt by now.
        """
        fresh = [each.task for nonce, each in self._under_way.items() if nonce not in self._late]
        if fresh:
            await asyncio.wait(fresh, timeout=_PATIENCE_SECONDS)
        stored, unsigned = 0, []
        for signing in list(self._under_way.values()):
            if not signing.task.done():
                self._note_late(signing)
                continue
            self._late.discard(signing.tx.nonce)
            del self._under_way[signing.tx.nonce]
            current = self._in_flight.current(signing.tx)
            try:
                attempt = signing.task.result()
                if current is not None:
                    await store(current, attempt)
                    stored += 1
            except (SignerUnavailable, Unsendable):
                if current is not None:
                    unsigned.append(current)
            finally:
                signing.reservation.__exit__(None, None, None)
        return stored, unsigned

    def _note_late(self, signing: _Signing) -> None:
        if signing.tx.nonce not in self._late:
            self._late.add(signing.tx.nonce)
            signing.task.add_done_callback(lambda _task: self._rounds.notify())
