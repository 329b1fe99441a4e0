"""Reads from the chain whether the wallets of this process's lanes have the roles that they need.

A mint lane notices a revoked role only when its next mint fails; a relay lane reads its roles
itself (`relays/roles.py`).
An answer that lacks a wallet's facts, or no answer, leaves the last facts as they were.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ltzd.chain.contracts import ltz
from ltzd.chain.node.node import Node
from ltzd.concurrency.outages import Outage
from ltzd.errors import NodeUnavailable
from ltzd.operator.fleet.wallet_roles import missing_roles, role_calls
from ltzd.operator.policy import MINT, RELAY
from ltzd.values import Address

PERIOD_SECONDS = 30.0


class WalletRights(msgspec.Struct, frozen=True):
    """`missing_roles` has names such as `LTZ.MINTER`; `mint_limit_is_zero` is of a mint wallet."""

    missing_roles: tuple[str, ...] = ()
    mint_limit_is_zero: bool = False


NO_FAULTS = WalletRights()


class WalletRightsWatch:
    """`held` returns wallet and kind of the lanes that this process holds now.

    `contracts` has the addresses by the contracts' names.
    """

    def __init__(
        self,
        node: Node,
        contracts: Mapping[str, Address],
        held: Callable[[], Sequence[tuple[Address, str]]],
        *,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._node = node
        self._contracts = contracts
        self._held = held
        self._period_seconds = period_seconds
        self._rights: dict[Address, WalletRights] = {}

    def of(self, wallet: Address) -> WalletRights:
        """The wallet's rights as last read; without a fault before they were read."""
        return self._rights.get(wallet, NO_FAULTS)

    async def run(self) -> None:
        """Read until cancelled; a new lane's wallet within a second."""
        outage = Outage("wallet_rights.not_read", "wallet_rights.read_again")
        while True:
            held = list(self._held())
            try:
                self._rights = {wallet: await self._read(wallet, kind) for wallet, kind in held}
            except (NodeUnavailable, ValueError) as error:
                outage.failed(str(error))
            else:
                outage.over()
            for _ in range(max(1, int(self._period_seconds))):
                await asyncio.sleep(min(1.0, self._period_seconds))
                if {wallet for wallet, _ in self._held()} - {wallet for wallet, _ in held}:
                    break

    async def _read(self, wallet: Address, kind: str) -> WalletRights:
        """Raises NodeUnavailable, and ValueError for an answer of another form."""
        if kind not in {MINT, RELAY}:
            return NO_FAULTS
        calls = role_calls(self._contracts, wallet, kind)
        if kind == MINT:
            calls.append((self._contracts["LTZ"], ltz.mint_limit_call(wallet)))
        answers = await self._node.view_outcomes(calls)
        limit = answers[-1] if kind == MINT else None
        is_zero = isinstance(limit, bytes) and ltz.decode_mint_limit(limit)[0] == 0
        return WalletRights(missing_roles(answers, kind), is_zero)
