"""Tracks whether the contracts grant a relay wallet the roles without which its relays revert.

`ltzd wallet add` may come before `ltzd wallet grant`, and a guardian may revoke the roles of a
wallet at any time. The lane leaves relays to other wallets meanwhile. A role that one node denies
is compared with other nodes' answers (`chain/node/second_opinions.py`).
"""

import math
from collections.abc import Mapping

from ltzd.chain.node.second_opinions import compare_views
from ltzd.chain.node.view import ChainView
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.operator.fleet.wallet_roles import missing_roles, role_calls
from ltzd.operator.policy import RELAY
from ltzd.values import Address

_PERIOD_SECONDS = 30.0
"""The pause between two readings of roles that the wallet has."""
_ROLES = "wallet_roles"
"""Nodes show different roles of a wallet."""


class RelayRoles:
    """`contracts` are those of `RelayTarget`."""

    def __init__(
        self, contracts: Mapping[str, Address], wallet: Address, clock: Clock = loop_time
    ) -> None:
        self._calls = role_calls(contracts, wallet, RELAY) if contracts else []
        self._clock = clock
        self._due_at = -math.inf
        self.are_granted = not self._calls
        """Also false before the first reading."""

    def doubt(self) -> None:
        """A relay has reverted: the next `refresh` reads the roles."""
        self._due_at = -math.inf

    async def refresh(self, view: ChainView) -> None:
        """Read the roles as of a view, if they are missing or due. Raises NodeUnavailable."""
        if not self._calls or (self.are_granted and self._clock() < self._due_at):
            return
        are_granted = await self._read(view)
        if not are_granted:
            # A node that is behind does not know of the newest grants.
            compared = await compare_views(view, False, self._read, bool, _ROLES, view.head.number)
            are_granted = compared.answer
        self.are_granted = are_granted
        self._due_at = self._clock() + _PERIOD_SECONDS

    async def _read(self, view: ChainView) -> bool:
        answers = await view.node.view_outcomes(self._calls, view.head)
        try:
            return not missing_roles(answers, RELAY)
        except ValueError as error:
            raise NodeUnavailable(f"hasRole: {error}", kind="malformed") from error
