"""Deployments on a real dev chain by one test's wallet, with kills at any transaction."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Any

from ltzd.chain.contracts import contract_abi, ltz
from ltzd.chain.deployment.executor import DeploymentExecutor, SendMode, begin
from ltzd.chain.deployment.plan import Deployment, DeploymentTerms, MintLimit
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc, RpcCall, RpcError
from ltzd.chain.signing import Signer
from ltzd.values import LTZ, Address, hex_of

MINTER, RELAYER, GUARDIAN, REGISTRAR = (Address(bytes((byte,)) * 20) for byte in range(1, 5))
LIMIT = MintLimit(1000 * LTZ, 3600)
SENDS = 8
"""Four creations, and one call for the roles of each."""
PANIC = bytes.fromhex("4e487b71") + (0x11).to_bytes(32, "big")
"""The revert data of a call whose arithmetic underflowed."""


class KilledError(Exception):
    """Stands for kill -9: ends the run at this point."""


class KilledRpc(Rpc):
    """Raises at the n-th publication of a transaction, before or after the node has it."""

    def __init__(self, url: str, dies_at: int | None = None, *, is_delivered: bool = False) -> None:
        super().__init__(url)
        self.dies_at = dies_at
        self.is_delivered = is_delivered
        self.sent = 0

    async def call(self, method: str, *params: object) -> Any:
        if method != "eth_sendRawTransaction":
            return await super().call(method, *params)
        self.sent += 1
        if self.sent != self.dies_at:
            return await super().call(method, *params)
        if self.is_delivered:
            with suppress(RpcError):
                await super().call(method, *params)
        raise KilledError


class ContradictoryRpc(Rpc):
    """Answers mintLimit with a revert at first, as anvil does at a block that it is mining."""

    def __init__(self, url: str, reverts: int) -> None:
        super().__init__(url)
        self.reverts = reverts

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        answers = await super().batch(calls)
        for place, call in enumerate(calls):
            if self.reverts and hex_of(ltz.MINT_LIMIT) in str(call):
                self.reverts -= 1
                answers[place] = RpcError(
                    3, "execution reverted: panic: arithmetic underflow or overflow (0x11)", PANIC
                )
        return answers


def terms_of(deployer: Address, **changes: Any) -> DeploymentTerms:
    terms: dict[str, Any] = {
        "admin_delay_seconds": 60,
        "minter": MINTER,
        "mint_limit": LIMIT,
        "relayers": (RELAYER,),
        "guardians": (GUARDIAN,),
        "registrars": (REGISTRAR,),
    }
    return DeploymentTerms(deployer=deployer, **(terms | changes))


@dataclass
class Site:
    """A funded deployer and its recorded deployment."""

    rpc_url: str
    written: Deployment | None = None
    secret: bytes = field(default_factory=lambda: token_bytes(32), repr=False)
    reported: list[str] = field(default_factory=list)

    @property
    def signer(self) -> Signer:
        return Signer(self.secret)

    async def fund(self, ether: float = 100) -> None:
        async with Rpc(self.rpc_url) as rpc:
            await rpc.call(
                "anvil_setBalance", hex_of(self.signer.address), hex(int(ether * 10**18))
            )

    def remember(self, deployment: Deployment) -> None:
        self.written = deployment

    async def run(
        self,
        rpc: Rpc | None = None,
        terms: DeploymentTerms | None = None,
        *,
        sends_at_once: bool = False,
    ) -> Deployment:
        """Runs as a new process would, from the recorded deployment."""
        async with rpc or Rpc(self.rpc_url) as own:
            deploying = self._executor(own, terms, sends_at_once=sends_at_once)
            return await deploying.run(self.written or await self.beginning(own))

    async def preview(self) -> list[str]:
        async with Rpc(self.rpc_url) as rpc:
            before = self.written or await self.beginning(rpc)
            return await self._executor(rpc).preview(before)

    def _executor(
        self, rpc: Rpc, terms: DeploymentTerms | None = None, *, sends_at_once: bool = False
    ) -> DeploymentExecutor:
        return DeploymentExecutor(
            rpc,
            self.signer,
            terms or terms_of(self.signer.address),
            self.remember,
            self.reported.append,
            SendMode(sends_at_once=sends_at_once, poll_seconds=0.02, timeout_seconds=20),
        )

    async def beginning(self, rpc: Rpc) -> Deployment:
        node = Node(rpc)
        genesis = await node.block(0)
        assert genesis is not None
        return await begin(node, await node.chain_id(), genesis.hash, self.signer.address)

    async def nonce(self) -> int:
        async with Rpc(self.rpc_url) as rpc:
            return await Node(rpc).nonce(self.signer.address)

    async def ask(self, contract: str, function: str, *arguments: object) -> Any:
        """Calls a view; returns the first value of its answer."""
        assert self.written is not None
        async with Rpc(self.rpc_url) as rpc:
            answer = await Node(rpc).view(
                self.written.address(contract),
                contract_abi.encode_call(contract, function, *arguments),
            )
        return contract_abi.decode_result(contract, function, answer)[0]

    async def holds(self, contract: str, role: str, account: Address) -> bool:
        is_granted: bool = await self.ask(contract, "hasRole", contract_abi.role_id(role), account)
        return is_granted
