"""A chain with many LTZ transfers, made with anvil: the work of the backfill's benchmark.

The holders' first coins come from one mint. Each block then holds one transaction of a contract
that calls `transferFrom` many times; the holders' allowances are written to anvil's storage. So
the blocks, logs and balances are those of LTZ itself.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import running_program, until_it_listens
from ltzd.chain.contracts import abi_words
from ltzd.chain.deployment.plan import Deployment
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc, RpcError
from ltzd.dev import contracts, wallets
from ltzd.dev.services.chain import find_anvil
from ltzd.dev.services.ports import free_port
from ltzd.values import Address, hex_of, keccak

_TRANSFER_FROM = abi_words.selector("transferFrom(address,address,uint256)")
_MINT_REWARD = abi_words.selector("mintReward(address,uint256,bytes32)")
_CALL_BYTES = 100
_ALLOWANCES_SLOT = 1
"""Of OpenZeppelin's ERC20: the mapping from holders and spenders to allowances."""
_SPENDER = Address(b"\x5e" * 20)
_FUNDS = 10**27
_FIRST_COINS = 10**21
_BATCH = 500
_LAST_BLOCKS = 70
"""Empty blocks at the end: anvil counts blocks as final that are 64 below the head."""


@dataclass(frozen=True, slots=True)
class TransferChain:
    """`head` is the last block's height; `transfers` counts the Transfer logs, mint included."""

    pid: int
    rpc_url: str
    deployment: Deployment
    chain_id: int
    head: int
    transfers: int
    folder: Path

    @property
    def ltz(self) -> Address:
        return self.deployment.address("LTZ")


@asynccontextmanager
async def transfer_chain(
    folder: Path, transfers: int, blocks: int, holders: int
) -> AsyncIterator[TransferChain]:
    program = await asyncio.to_thread(find_anvil)
    if program is None:
        raise SystemExit("there is no anvil here: `make bench` installs it")
    port, log = free_port(), folder / "anvil.log"
    options = ["--port", str(port), "--chain-id", "31337", "--quiet"]
    # Old states would be written to disk, at each block.
    options += ["--order", "fifo", "--gas-limit", "300000000", "--prune-history"]
    async with running_program([program, *options], log) as process:
        await until_it_listens(process, port, log)
        rpc_url = f"http://127.0.0.1:{port}"
        async with Rpc(rpc_url) as rpc:
            deployment, chain_id = await _deployed(folder, rpc)
            made = await _make(rpc, deployment.address("LTZ"), transfers, blocks, holders)
            head = await Node(rpc).block("latest")
        assert head is not None
        yield TransferChain(process.pid, rpc_url, deployment, chain_id, head.number, made, folder)


async def _deployed(folder: Path, rpc: Rpc) -> tuple[Deployment, int]:
    node = Node(rpc)
    _, admin = wallets.load_or_create(folder, "admin")
    _, minter = wallets.load_or_create(folder, "minter")
    await contracts.fund(rpc, node, [admin.address, minter.address])
    genesis = await node.block(0)
    assert genesis is not None
    chain_id = await node.chain_id()
    terms = contracts.dev_terms(admin.address, minter.address, ())
    deployment = await contracts.ensure_deployed(folder, rpc, chain_id, genesis.hash, admin, terms)
    await rpc.call("anvil_impersonateAccount", hex_of(minter.address))
    mint = _MINT_REWARD + b"".join(
        (abi_words.encode_address(_holder(0)), abi_words.encode_uint(_FUNDS), b"\x01" * 32)
    )
    call = {"from": hex_of(minter.address), "to": hex_of(deployment.address("LTZ"))}
    await rpc.call("eth_sendTransaction", call | {"data": hex_of(mint), "gas": hex(10**6)})
    return deployment, chain_id


async def _make(rpc: Rpc, ltz: Address, transfers: int, blocks: int, holders: int) -> int:
    """Mines the transfers; returns the number of Transfer logs."""
    await rpc.call("anvil_setCode", hex_of(_SPENDER), hex_of(_spender_code(ltz)))
    await _allow(rpc, ltz, holders)
    sender = (await rpc.call("eth_accounts"))[0]
    per_block = transfers // blocks
    moves = _moves(transfers, holders)
    await rpc.call("evm_setAutomine", False)
    for _ in range(blocks):
        data = b"".join(itertools.islice(moves, per_block))
        call = {"from": sender, "to": hex_of(_SPENDER), "data": hex_of(data)}
        await rpc.call("eth_sendTransaction", call | {"gas": hex(100_000 * per_block)})
        await rpc.call("evm_mine")
    for _ in range(_LAST_BLOCKS):
        await rpc.call("evm_mine")
    return per_block * blocks + 1


def _moves(transfers: int, holders: int) -> Iterator[bytes]:
    """The calls: first each holder's first coins, then transfers between random holders."""
    source = random.Random(holders)
    for number in range(transfers):
        if number < holders:
            sender, recipient, amount = 0, number + 1, _FIRST_COINS
        else:
            sender, recipient = source.randint(1, holders), source.randint(1, holders)
            amount = source.randint(1, _FIRST_COINS // 10_000)
        yield _TRANSFER_FROM + b"".join(
            (
                abi_words.encode_address(_holder(sender)),
                abi_words.encode_address(_holder(recipient)),
                abi_words.encode_uint(amount),
            )
        )


def _holder(number: int) -> Address:
    return Address(keccak(b"holder" + number.to_bytes(4, "big"))[:20])


async def _allow(rpc: Rpc, ltz: Address, holders: int) -> None:
    """Writes each holder's unlimited allowance of the spender to LTZ's storage."""
    calls = []
    for number in range(holders + 1):
        inner = keccak(bytes(12) + _holder(number) + _ALLOWANCES_SLOT.to_bytes(32, "big"))
        slot = keccak(bytes(12) + _SPENDER + inner)
        calls.append(("anvil_setStorageAt", (hex_of(ltz), hex_of(slot), "0x" + "ff" * 32)))
    for at in range(0, len(calls), _BATCH):
        _check(await rpc.batch(calls[at : at + _BATCH]))


def _check(answers: list[Any]) -> None:
    for answer in answers:
        if isinstance(answer, RpcError):
            raise SystemExit(f"anvil refuses to make the chain: {answer.message}")


def _spender_code(ltz: Address) -> bytes:
    """A contract that calls LTZ with each 100 bytes of its input, and reverts if a call does."""
    return b"".join(
        (
            bytes.fromhex("5f"),  # offset
            bytes.fromhex("5b 80 36 11 15 60 35 57"),  # while offset < size, else to the end
            bytes.fromhex("60 64 81 5f 37"),  # copy 100 bytes of the input
            bytes.fromhex("5f 5f 60 64 5f 5f 73"),
            ltz,
            bytes.fromhex("5a f1 15 60 37 57"),  # call LTZ, else to the revert
            bytes.fromhex("60 64 01 60 01 56"),
            bytes.fromhex("5b 00 5b 5f 5f fd"),
        )
    )
