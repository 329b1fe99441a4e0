"""Tracks whether the contracts grant a relay wallet the roles without which its relays revert.

`ltzd wallet add` may come before `ltzd wallet grant`, and a guardian may revoke the roles of a
wallet at any time. The lane leaves relays to other wallets meanwhile. A role that one node denies
is compared with other nodes' answers (`chain/node/second_opinions.py`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ltzd.chain.node.node import Node
from ltzd.chain.node.second_opinions import Question, compare_with_others
from ltzd.chain.node.view import ChainView
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.operator.fleet.wallet_roles import missing_roles, role_calls
from ltzd.operator.policy import RELAY
from ltzd.values import Address, Hash32

_PERIOD_SECONDS = 30.0
"""Between two readings of roles that the wallet has."""
_ROLES = "wallet_roles"
"""Nodes show different roles of a wallet."""


@dataclass(frozen=True, slots=True)
class _Roles:
    """A node's answer after the block with this hash."""

    are_granted: bool
    block_hash: Hash32


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
        roles = await self._read(view)
        if not roles.are_granted:
            question = self._question(view.head.number)
            roles = (await compare_with_others(view.node, roles, question)).answer
        self.are_granted = roles.are_granted
        self._due_at = self._clock() + _PERIOD_SECONDS

    async def _read(self, view: ChainView) -> _Roles:
        answers = await view.node.view_outcomes(self._calls, view.head)
        try:
            return _Roles(not missing_roles(answers, RELAY), view.head.hash)
        except ValueError as error:
            raise NodeUnavailable(f"hasRole: {error}") from error

    def _question(self, block_number: int) -> Question[_Roles]:
        async def ask(other: Node) -> _Roles | None:
            view = await ChainView.newest(other)
            # A node that is behind does not know of the newest grants.
            return await self._read(view) if view.head.number >= block_number else None

        return Question(ask, _leniency, _contradict, _ROLES)


def _leniency(roles: _Roles) -> bool:
    return roles.are_granted


def _contradict(first: _Roles, second: _Roles) -> bool:
    """Between two blocks the roles may have changed."""
    return first.block_hash == second.block_hash and first.are_granted != second.are_granted
