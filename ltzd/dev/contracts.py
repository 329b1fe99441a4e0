"""LTZ on the dev chain: deployed once, remembered, and used again while the chain still has it.

The dev wallets get their gas from the node's unlocked account. The mint wallet holds MINTER with a
limit; the operator wallet holds nothing of LTZ yet.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eth_hash.auto import keccak

from ltzd.chain import abi
from ltzd.chain.node import Node, Publication
from ltzd.chain.rpc import Rpc, RpcError
from ltzd.chain.signing import Signer, Unsigned
from ltzd.dev.keys import write_private
from ltzd.errors import Misconfigured, NodeUnavailable
from ltzd.values import Address, address_of, hash_of, hex_of

_ETHER = 10**18
_FUNDS = 200 * _ETHER
_FUNDS_LOW = 50 * _ETHER
_RECEIPT_SECONDS = 60.0
_DEPLOY_GAS = 6_000_000
_CALL_GAS = 200_000
MINT_LIMIT = 4_000_000_000 * 10**18
"""Over what a demo can mint in a day; choices.md wants 2 billion LTZ at least."""
_MINT_WINDOW_SECONDS = 86_400
_NAME = "contracts.json"


@dataclass(frozen=True, slots=True)
class Deployed:
    ltz: Address
    first_block: int


async def fund(rpc: Rpc, node: Node, wallets: list[Address]) -> None:
    """Give each wallet that is low on gas money some from the node's unlocked account."""
    poor = [wallet for wallet in wallets if await node.balance(wallet) < _FUNDS_LOW]
    if not poor:
        return
    accounts = await _unlocked(rpc)
    for wallet in poor:
        balances = {account: await node.balance(address_of(account)) for account in accounts}
        richest = max(balances, key=balances.__getitem__)
        if balances[richest] < _FUNDS + _ETHER:
            raise Misconfigured(
                f"The unlocked accounts of the node at {rpc.url} are used up; begin it anew."
            )
        transfer = {"from": richest, "to": hex_of(wallet), "value": hex(_FUNDS)}
        sent: str = await rpc.call("eth_sendTransaction", transfer)
        await _mined(node, sent)


async def _unlocked(rpc: Rpc) -> list[str]:
    try:
        accounts: Any = await rpc.call("eth_accounts")
    except RpcError:
        accounts = []
    if not accounts:
        raise Misconfigured(
            f"The node at {rpc.url} has no unlocked account to fund the dev wallets from; "
            "give the --rpc-url of a dev chain such as anvil."
        )
    return list(accounts)


async def deployed(
    data_dir: Path, node: Node, chain_id: int, genesis: str, admin: Signer, minter: Address
) -> Deployed:
    """The LTZ that the data directory remembers and the chain still has, else a new one."""
    remembered = _remembered(data_dir, genesis)
    if remembered is not None and await node.code(remembered.ltz):
        return remembered
    deployer = _Deployer(node, chain_id, admin)
    address, block = await deployer.create(abi.creation_code("LTZ", admin.address, 0))
    guardian, minters = abi.role_id("GUARDIAN"), abi.role_id("MINTER")
    limit = abi.call("LTZ", "setMintLimit", minter, MINT_LIMIT, _MINT_WINDOW_SECONDS)
    await deployer.call(address, abi.call("LTZ", "grantRole", guardian, admin.address))
    await deployer.call(address, limit)
    await deployer.call(address, abi.call("LTZ", "grantRole", minters, minter))
    write_private(
        data_dir / _NAME,
        json.dumps({"genesis": genesis, "LTZ": hex_of(address), "firstBlock": block}),
    )
    return Deployed(address, block)


def _remembered(data_dir: Path, genesis: str) -> Deployed | None:
    try:
        content = json.loads((data_dir / _NAME).read_text(encoding="utf-8"))
        if content["genesis"] != genesis:
            return None
        return Deployed(address_of(content["LTZ"]), int(content["firstBlock"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Misconfigured(
            f"{data_dir / _NAME} cannot be understood; start with --clean to begin anew."
        ) from error


class _Deployer:
    """Sends one transaction after the other from the admin wallet and waits for each."""

    def __init__(self, node: Node, chain_id: int, admin: Signer) -> None:
        self._node = node
        self._chain_id = chain_id
        self._admin = admin

    async def create(self, code: bytes) -> tuple[Address, int]:
        nonce = await self._node.nonce(self._admin.address)
        block = await self._send(Address(b""), code, _DEPLOY_GAS)
        return _created(self._admin.address, nonce), block

    async def call(self, to: Address, data: bytes) -> None:
        await self._send(to, data, _CALL_GAS)

    async def _send(self, to: Address, data: bytes, gas_limit: int) -> int:
        head, _ = await self._node.head_and_final()
        market = await self._node.market(head)
        signed = self._admin.sign(
            Unsigned(
                chain_id=self._chain_id,
                nonce=await self._node.nonce(self._admin.address),
                max_priority_fee_per_gas=market.tip,
                max_fee_per_gas=2 * market.base_fee + market.tip,
                gas_limit=gas_limit,
                to=to,
                value=0,
                data=data,
            )
        )
        outcome, text = await self._node.publish(signed.raw)
        if outcome is not Publication.ACCEPTED:
            raise Misconfigured(f"The dev chain refuses to take a deployment: {text}")
        return await _mined(self._node, hex_of(signed.hash))


def _created(sender: Address, nonce: int) -> Address:
    """The address of a contract that `sender` creates with `nonce` (Yellow Paper 7)."""
    digits = nonce.to_bytes((nonce.bit_length() + 7) // 8, "big")
    number = digits if nonce and nonce < 0x80 else bytes((0x80 + len(digits),)) + digits
    payload = b"\x94" + sender + number
    return Address(keccak(bytes((0xC0 + len(payload),)) + payload)[-20:])


async def _mined(node: Node, transaction: str) -> int:
    """Wait for a transaction's block; raises Misconfigured if it fails or is not mined in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _RECEIPT_SECONDS
    while loop.time() < deadline:
        (receipt,) = await node.receipts([hash_of(transaction)])
        if receipt is not None:
            if not receipt.succeeded:
                raise Misconfigured(
                    f"The dev chain reverted the set-up transaction {transaction}; "
                    "start with --clean."
                )
            return receipt.block_number
        await asyncio.sleep(0.02)
    raise NodeUnavailable(
        f"The dev chain did not mine {transaction} within {_RECEIPT_SECONDS:.0f} s; "
        "is its mining switched off?"
    )
