"""The four contracts on one test's dev chain, with a real key for every role.

web3 encodes the calls (`ltzd.chain.contracts.contract_abi`); eth-account signs users' typed data,
as wallets do.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from eth_account import Account
from eth_account.signers.local import LocalAccount

from ltzd.chain.contracts import artifacts, contract_abi, reverts
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc
from ltzd.chain.signing import Signer, UnsignedTransaction
from ltzd.dev.services.chain import Kind
from ltzd.values import LTZ, Address, address_of, checksummed, hex_of
from tests.support.chain.chains import a_chain
from tests.support.waiting import until

GAS_LIMIT = 6_000_000
GAS_MONEY = 10**21
HOUR = 3600
ROLES = {
    "LTZ": ("MINTER",),
    "PerkNFT": ("REGISTRAR", "RELAYER", "REDEEMER"),
    "PointsSale": ("REGISTRAR", "RELAYER"),
    "BusinessEscrow": ("REGISTRAR", "RELAYER", "SETTLER", "ARBITER"),
}
DOMAIN_NAMES = {"LTZ": "Loyalty Token"}
TYPES = {
    "Permit": "address owner,address spender,uint256 value,uint256 nonce,uint256 deadline",
    "Claim": "address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,"
    "bytes32 ref,uint256 deadline",
    "Buy": "address buyer,uint256 itemId,uint256 quantity,uint256 maxTotal,bytes32 ref,"
    "uint256 deadline",
    "Release": "bytes32 dealId,uint256 deadline",
    "Refund": "bytes32 dealId,uint256 deadline",
}


@dataclass(frozen=True)
class Party:
    """An account with a private key."""

    account: LocalAccount = field(default_factory=Account.create)

    @property
    def signer(self) -> Signer:
        return Signer(bytes(self.account.key))

    @property
    def address(self) -> Address:
        return address_of(str(self.account.address))


def a_reference() -> bytes:
    return uuid4().bytes + uuid4().bytes


class Contracts:
    """The deployed contracts. Parties hold the roles of their names; `admin` only grants them."""

    def __init__(self, rpc: Rpc, chain_id: int) -> None:
        self.rpc = rpc
        self.node = Node(rpc)
        self.chain_id = chain_id
        self.at: dict[str, Address] = {}
        self.admin, self.minter, self.relay = Party(), Party(), Party()
        self.registrar, self.settler, self.arbiter = Party(), Party(), Party()
        self._seq = 0

    async def deploy(self, ltz_build: bytes | None = None) -> None:
        """With `ltz_build` LTZ is another build than this version's, by its creation code."""
        staff = (self.admin, self.minter, self.relay, self.registrar, self.settler, self.arbiter)
        for party in staff:
            await self.give_gas_money(party)
        self.at["LTZ"] = await self._create("LTZ", self.admin.address, 0, build=ltz_build)
        for name in ("PerkNFT", "PointsSale", "BusinessEscrow"):
            self.at[name] = await self._create(name, self.at["LTZ"], self.admin.address, 0)
        for name, roles in ROLES.items():
            grants = [
                contract_abi.encode_call(
                    name, "grantRole", contract_abi.role_id(role), self._holder(role).address
                )
                for role in roles
            ]
            await self.send(self.admin, name, "multicall", grants)
        limit = (self.minter.address, 10**9 * LTZ, 86_400)
        await self.send(self.admin, "LTZ", "setMintLimit", *limit)

    def _holder(self, role: str) -> Party:
        return {
            "MINTER": self.minter,
            "REGISTRAR": self.registrar,
            "SETTLER": self.settler,
            "ARBITER": self.arbiter,
        }.get(role, self.relay)

    # Transactions and views

    async def send(self, by: Party, contract: str, function: str, *arguments: object) -> Any:
        """Sends a transaction that must succeed; returns its receipt."""
        receipt = await self.try_to(by, contract, function, *arguments)
        assert receipt["status"] == "0x1", await self.reason(by, contract, function, *arguments)
        return receipt

    async def try_to(self, by: Party, contract: str, function: str, *arguments: object) -> Any:
        """Sends a transaction, which may revert; returns its receipt."""
        data = contract_abi.encode_call(contract, function, *arguments)
        return await self.publish(await self.sign(by, self.at[contract], data))

    async def view(self, contract: str, function: str, *arguments: object) -> Any:
        """Calls a view; returns its value, or a tuple of several."""
        data = contract_abi.encode_call(contract, function, *arguments)
        answer = await self.node.view(self.at[contract], data)
        values = contract_abi.decode_result(contract, function, answer)
        return values[0] if len(values) == 1 else values

    async def revert(self, by: Party, contract: str, function: str, *arguments: object) -> bytes:
        """Returns the revert data of a call that must revert."""
        data = contract_abi.encode_call(contract, function, *arguments)
        (revert,) = await self.node.simulate(self.at[contract], [data], by.address)
        assert revert is not None, f"{contract}.{function} does not revert"
        assert revert.data is not None, revert.text
        return revert.data

    async def refusal(self, by: Party, contract: str, function: str, *arguments: object) -> str:
        """Returns the name of the error with which a call reverts."""
        return reverts.error_name(await self.revert(by, contract, function, *arguments))

    async def reason(self, by: Party, contract: str, function: str, *arguments: object) -> str:
        return reverts.describe(await self.revert(by, contract, function, *arguments))

    def events(self, contract: str, receipt: Any) -> list[contract_abi.DecodedEvent]:
        """Returns the contract's own events in a receipt."""
        logs = [log for log in receipt["logs"] if log["address"] == hex_of(self.at[contract])]
        return [event for log in logs if (event := contract_abi.decode_log(contract, log))]

    def event(self, contract: str, receipt: Any, name: str) -> Any:
        """Returns the arguments of the only event of that name."""
        (event,) = [each for each in self.events(contract, receipt) if each.name == name]
        return event.arguments

    # LTZ and time

    async def mint(self, to: Party, ltz: int) -> None:
        self._seq += 1
        reference = uuid4().bytes + b"\x01" + bytes(7) + self._seq.to_bytes(8, "big")
        await self.send(self.minter, "LTZ", "mintReward", to.address, ltz * LTZ, reference)

    async def balance(self, of: Party) -> int:
        """Returns the balance in wei."""
        return int(await self.view("LTZ", "balanceOf", of.address))

    async def give_gas_money(self, to: Party) -> None:
        # A name that anvil, the tester chain and Hardhat share.
        await self.rpc.call("hardhat_setBalance", hex_of(to.address), hex(GAS_MONEY))

    async def now(self) -> int:
        head, _ = await self.node.head_and_final()
        return head.timestamp

    async def let_pass(self, seconds: int) -> None:
        # Not evm_increaseTime: it moves the clock, and blocks mined quickly are ahead of it.
        await self.rpc.call("evm_setNextBlockTimestamp", await self.now() + seconds)
        await self.rpc.call("evm_mine")

    # Signatures of users

    def signature(self, by: Party, contract: str, kind: str, message: dict[str, Any]) -> bytes:
        """Returns a signature of 65 bytes over EIP-712 data."""
        fields = [field.split(" ") for field in TYPES[kind].split(",")]
        domain = {
            "name": DOMAIN_NAMES.get(contract, contract),
            "version": "1",
            "chainId": self.chain_id,
            "verifyingContract": checksummed(self.at[contract]),
        }
        types = {kind: [{"name": name, "type": solidity} for solidity, name in fields]}
        return bytes(by.account.sign_typed_data(domain, types, message).signature)

    async def permit(self, by: Party, contract: str, value: int) -> tuple[object, ...]:
        """Returns the arguments of `permitLTZ` on `contract`: the user allows it `value` wei."""
        return await self.permit_of(by, self.at[contract], value)

    async def permit_of(self, by: Party, spender: Address, value: int) -> tuple[object, ...]:
        """Returns the arguments of a permit for any spender, without the spender."""
        deadline = await self.now() + HOUR
        message = {
            "owner": checksummed(by.address),
            "spender": checksummed(spender),
            "value": value,
            "nonce": await self.view("LTZ", "nonces", by.address),
            "deadline": deadline,
        }
        raw = self.signature(by, "LTZ", "Permit", message)
        return (by.address, value, deadline, raw[64], raw[:32], raw[32:64])

    async def sign(self, by: Party, to: Address, data: bytes, gas_limit: int = GAS_LIMIT) -> bytes:
        """Returns a raw transaction with sufficient fees."""
        head, _ = await self.node.head_and_final()
        gas_price = await self.node.gas_price(head)
        return by.signer.sign(
            UnsignedTransaction(
                chain_id=self.chain_id,
                nonce=await self.node.nonce(by.address),
                max_priority_fee_per_gas=gas_price.tip,
                max_fee_per_gas=2 * gas_price.base_fee + gas_price.tip,
                gas_limit=gas_limit,
                to=to,
                value=0,
                data=data,
            )
        ).raw

    async def _create(
        self, contract: str, *arguments: object, build: bytes | None = None
    ) -> Address:
        data = contract_abi.creation_code(contract, *arguments)
        if build is not None:
            data = build + data[len(artifacts.bytecode(contract)) :]
        receipt = await self.publish(await self.sign(self.admin, Address(b""), data))
        assert receipt["status"] == "0x1", contract
        return address_of(receipt["contractAddress"])

    async def publish(self, raw: bytes) -> Any:
        """Publishes a raw transaction; returns its receipt."""
        sent = await self.rpc.call("eth_sendRawTransaction", hex_of(raw))
        return await until(lambda: self.rpc.call("eth_getTransactionReceipt", sent))


@asynccontextmanager
async def deployed_contracts(
    kind: Kind, ltz_build: bytes | None = None
) -> AsyncIterator[Contracts]:
    async with (
        a_chain(kind) as chain,
        contracts_deployed_at(chain.rpc_url, ltz_build) as contracts,
    ):
        yield contracts


@asynccontextmanager
async def contracts_deployed_at(
    rpc_url: str, ltz_build: bytes | None = None
) -> AsyncIterator[Contracts]:
    async with Rpc(rpc_url) as rpc:
        contracts = Contracts(rpc, int(await rpc.call("eth_chainId"), 16))
        await contracts.deploy(ltz_build)
        yield contracts
