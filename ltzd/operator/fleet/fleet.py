"""The lanes of one process, as many as the settings and the registry name wallets.

The registry (`operator_wallets`) holds every wallet of the chain. The fleet enters the wallets of
the settings into it, and serves each wallet that is active or draining and whose signer opens in
this process. A change of the registry is in force within a second. Each lane has its own task: a
signer that does not open, or a lane that fails, never ends another lane.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import msgspec

from ltzd.chain.signing import WalletSigner
from ltzd.concurrency.loggable_errors import loggable_reason
from ltzd.concurrency.outages import Outage
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.operator.fleet.slot import FleetLane, LaneOpener, LaneSlot, SlotPauses, WalletRetired
from ltzd.store.database import Pool, session
from ltzd.store.operator import wallets
from ltzd.store.operator.wallets import OperatorWallet, WalletState
from ltzd.store.wakeups import WALLETS, WakeupHub
from ltzd.values import Address, checksummed, iso

_POLL_SECONDS = 1.0
"""The longest delay until a change of the registry takes effect."""

SignerOpening = AbstractAsyncContextManager[WalletSigner]
"""A signer that is open until the end of the block. Raises Misconfigured, SignerUnavailable."""


class SettingsWallet(msgspec.Struct, frozen=True):
    """A wallet that the settings name; `setting` is the setting's name.

    `address` is None until a remote signer has told it.
    """

    setting: str
    kind: str
    open_signer: Callable[[], SignerOpening]
    address: Address | None = None


class FleetParts(msgspec.Struct, frozen=True):
    """How the fleet opens signers and makes lanes.

    `open_signer` reads the reference in a wallet's row. `watch` makes the lane without a key that
    watches a retired wallet. `on_size` is called with the number of lanes when it has changed.
    """

    open_signer: Callable[[Mapping[str, Any]], SignerOpening]
    lane: Callable[[str, WalletSigner], FleetLane]
    watch: Callable[[OperatorWallet], FleetLane] | None = None
    on_size: Callable[[int], None] = lambda _size: None


class UnservedWallet(msgspec.Struct, frozen=True):
    """`name` is the setting's name or the wallet's address; `is_required` as in `LaneSlot`."""

    kind: str
    name: str
    fault: str
    is_required: bool

    @property
    def sentence(self) -> str:
        return f"Wallet {self.kind} {self.name} is not served by this process: {self.fault}"


class _Entry(msgspec.Struct):
    """A slot, its task, and the part of the wallet's row that the slot was made from."""

    slot: LaneSlot
    version: object
    task: asyncio.Task[None]
    is_ending: bool = False

    def end(self) -> None:
        """Cancel the task, once: a second cancellation would break off the end of its term."""
        if not self.is_ending:
            self.is_ending = True
            self.task.cancel()


class LaneFleet:
    """`run` serves the wallets until it is cancelled."""

    def __init__(
        self,
        pool: Pool,
        chain_id: int,
        wakeups: WakeupHub,
        settings_wallets: Sequence[SettingsWallet],
        parts: FleetParts,
        pauses: SlotPauses | None = None,
    ) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._parts = parts
        self._settings_wallets = settings_wallets
        self._pauses = pauses or SlotPauses()
        self._changes = wakeups.subscribe(WALLETS)
        self._entries: dict[str, _Entry] = {}
        self._served: dict[Address, str] = {}
        self._size = 0
        self._has_begun = False
        self._outage = Outage("fleet.not_read", "fleet.read_again")

    @property
    def lanes(self) -> list[FleetLane]:
        """The open lanes: those that this process serves, and those that it stands by for."""
        return [entry.slot.lane for entry in self._entries.values() if entry.slot.lane is not None]

    @property
    def failures(self) -> Mapping[Address, str]:
        """The errors that ended lanes, which begin again after a pause."""
        return {
            slot.lane.wallet: slot.failure
            for slot in self._slots()
            if slot.lane is not None and slot.failure is not None
        }

    @property
    def is_settled(self) -> bool:
        """Whether every lane can sign, or waits for a person."""
        return self._has_begun and all(slot.is_settled for slot in self._slots())

    @property
    def unserved(self) -> list[UnservedWallet]:
        """The wallets that this process should serve, and for which it has no lane.

        A retired wallet that the settings still name is not included; the log reports it.
        """
        return [
            UnservedWallet(slot.kind, slot.name, slot.fault, slot.is_required)
            for slot in self._slots()
            if slot.fault is not None and not slot.is_retired
        ]

    async def run(self) -> None:
        """Serve the wallets until cancelled."""
        try:
            for wallet in self._settings_wallets:
                self._begin(
                    wallet.setting, wallet.kind, None, self._opener(wallet), is_required=True
                )
            while True:
                await self._follow_registry()
                await self._changes.wait(_POLL_SECONDS)
        finally:
            for entry in self._entries.values():
                entry.end()
            if self._entries:
                await asyncio.wait([entry.task for entry in self._entries.values()])

    def _slots(self) -> Iterator[LaneSlot]:
        return (entry.slot for entry in self._entries.values())

    async def _follow_registry(self) -> None:
        try:
            async with session(self._pool) as connection:
                rows = await wallets.list_wallets(connection, self._chain_id)
                has_retired = any(row.state is WalletState.RETIRED for row in rows)
                watched = (
                    await wallets.retired_with_work(connection, self._chain_id)
                    if has_retired
                    else []
                )
        except (DatabaseUnavailable, asyncpg.PostgresError, ValueError) as error:
            # A ValueError is a row that a newer version has written. The known lanes go on.
            self._outage.failed(loggable_reason(error))
            return
        self._outage.over()
        self._restart_retired(rows)
        wanted = {checksummed(row.wallet): (row, row.signer) for row in self._to_serve(rows)}
        if self._parts.watch is not None:
            wanted |= {f"retired {checksummed(row.wallet)}": (row, None) for row in watched}
        self._apply(wanted)
        self._has_begun = True
        self._report_size()

    def _to_serve(self, rows: Sequence[OperatorWallet]) -> Iterator[OperatorWallet]:
        """The rows whose signer this process opens itself."""
        settings_names = {wallet.setting for wallet in self._settings_wallets}
        addresses = {wallet.address for wallet in self._settings_wallets}
        for row in rows:
            is_of_settings = (
                row.wallet in addresses or self._served.get(row.wallet) in settings_names
            )
            is_retired = row.state is WalletState.RETIRED
            if row.signer is not None and not is_retired and not is_of_settings:
                yield row

    def _apply(self, wanted: Mapping[str, tuple[OperatorWallet, Any]]) -> None:
        """Begin and end slots of the registry. A slot is replaced once its task has ended."""
        settings_names = {wallet.setting for wallet in self._settings_wallets}
        for name, entry in list(self._entries.items()):
            if name in settings_names:
                continue
            row, version = wanted.get(name, (None, None))
            if row is None or version != entry.version:
                entry.end()
            if entry.task.done():
                del self._entries[name]
        for name, (row, version) in wanted.items():
            if name not in self._entries:
                self._begin(name, row.kind, version, self._row_opener(row), is_required=False)

    def _restart_retired(self, rows: Sequence[OperatorWallet]) -> None:
        """End the lanes of retired wallets that the settings name; their slots say why."""
        retired = {row.wallet for row in rows if row.state is WalletState.RETIRED}
        for wallet in self._settings_wallets:
            entry = self._entries[wallet.setting]
            if entry.task.done():
                self._begin(
                    wallet.setting, wallet.kind, None, self._opener(wallet), is_required=True
                )
            elif entry.slot.lane is not None and entry.slot.lane.wallet in retired:
                entry.end()

    def _begin(
        self, name: str, kind: str, version: object, opener: LaneOpener, *, is_required: bool
    ) -> None:
        slot = LaneSlot(name, kind, opener, self._pauses, is_required=is_required)
        task = asyncio.create_task(slot.run())
        task.add_done_callback(lambda _task: self._changes.notify())
        self._entries[name] = _Entry(slot, version, task)

    def _report_size(self) -> None:
        if len(self._entries) != self._size:
            self._size = len(self._entries)
            self._parts.on_size(self._size)

    @contextmanager
    def _serving(self, address: Address, name: str) -> Iterator[None]:
        """Raises Misconfigured if the wallet has another lane in this process."""
        if address in self._served:
            raise Misconfigured(
                f"{checksummed(address)} is served through {self._served[address]} already: name "
                "each wallet once."
            )
        self._served[address] = name
        try:
            yield
        finally:
            del self._served[address]

    # Opening lanes

    def _opener(self, wallet: SettingsWallet) -> LaneOpener:
        return lambda: self._open_of_settings(wallet)

    def _row_opener(self, row: OperatorWallet) -> LaneOpener:
        if row.state is WalletState.RETIRED:
            return lambda: self._open_watch(row)
        return lambda: self._open_of_row(row)

    @asynccontextmanager
    async def _open_of_settings(self, wallet: SettingsWallet) -> AsyncIterator[FleetLane]:
        async with wallet.open_signer() as signer:
            await self._enter(signer.address, wallet)
            with self._serving(signer.address, wallet.setting):
                yield self._parts.lane(wallet.kind, signer)

    async def _enter(self, address: Address, wallet: SettingsWallet) -> None:
        """Enter a wallet of the settings into the registry.

        Raises WalletRetired for a retired one, Misconfigured for one of another kind.
        """
        async with session(self._pool) as connection:
            await wallets.add(connection, self._chain_id, address, wallet.kind)
            row = await wallets.find(connection, self._chain_id, address)
        assert row is not None
        name = checksummed(address)
        if row.kind != wallet.kind:
            raise Misconfigured(
                f"{wallet.setting} names {name} as a {wallet.kind} wallet, and the database knows "
                f"it as a {row.kind} wallet: give each kind its own keys."
            )
        if row.state is WalletState.RETIRED:
            raise WalletRetired(
                f"{wallet.setting} names {name}, which was retired at {iso(row.state_since)} and "
                "stays so: remove it from the settings."
            )

    @asynccontextmanager
    async def _open_of_row(self, row: OperatorWallet) -> AsyncIterator[FleetLane]:
        assert row.signer is not None
        async with self._parts.open_signer(row.signer) as signer:
            if signer.address != row.wallet:
                raise Misconfigured(
                    f"Its signer holds the key of {checksummed(signer.address)}: put the right key "
                    "in place, or give the right one with `ltzd wallet add`."
                )
            with self._serving(row.wallet, checksummed(row.wallet)):
                yield self._parts.lane(row.kind, signer)

    @asynccontextmanager
    async def _open_watch(self, row: OperatorWallet) -> AsyncIterator[FleetLane]:
        assert self._parts.watch is not None
        yield self._parts.watch(row)
