"""Fake nodes that speak as the clients of six kinds of chains do, over HTTP.

Each has the extra fields of its blocks, receipts and errors, the transactions that the chain itself
puts into blocks, and takes from the wallet's balance what its chain would. The field names and the
shapes are those of the clients' own answers; docs/chains.md has the sources. The chain id is the
one of all tests.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from eth_hash.auto import keccak

from ltzd.chain.node.l1_costs import ARB_SYS, GAS_PRICE_ORACLE, NODE_INTERFACE
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc, RpcError
from ltzd.rules.operator.fees import GWEI
from ltzd.values import address_of, bytes_of, hex_of
from tests.support.chain.fake_node import (
    LTZ_AT,
    Block,
    Done,
    FakeNode,
    SentTransaction,
    logs_json,
)

ZERO_ADDRESS = hex_of(bytes(20))
NO_BLOOM = "0x" + "00" * 256
_METHOD_NOT_FOUND = -32601


def selector(signature: str) -> bytes:
    return keccak(signature.encode())[:4]


class ChainNode(FakeNode):
    """Ethereum, as geth tells it: the base of all others."""

    block_seconds = 12.0
    least_tip = 1
    """A node's pool refuses less, in wei per gas."""
    no_final: str | None = "unknown block"
    """Without a final block: the error text for the tag `finalized`, or None for null."""
    paid = 0
    """The wei that the wallet has paid for mined transactions."""

    # Fees and gas

    def price_of(self, sent: SentTransaction, base_fee: int) -> int:
        """The wei per gas that the chain takes."""
        return min(sent.max_fee_per_gas, base_fee + sent.tip)

    def fee_beside_gas(self, sent: SentTransaction) -> int:
        return 0

    def _execute(self, parent: Block, nonces: Any, used: Any) -> Iterator[Done]:
        for done in super()._execute(parent, nonces, used):
            price = self.price_of(done.sent, self.base_fee)
            cost = self.gas_used(done.sent) * price + self.fee_beside_gas(done.sent)
            assert cost <= self.balance, "the wallet cannot pay what the chain takes"
            self.balance -= cost
            self.paid += cost
            yield done

    def _take(self, sent: SentTransaction) -> None:
        self.check_form(sent)
        most = sent.gas_limit * sent.max_fee_per_gas + self.fee_beside_gas(sent)
        if most > self.balance:
            raise RpcError(
                -32000,
                f"insufficient funds for gas * price + value: balance {self.balance}, "
                f"tx cost {most}, overshot {most - self.balance}",
            )
        super()._take(sent)

    def check_form(self, sent: SentTransaction) -> None:
        if sent.tip < self.least_tip:
            raise RpcError(
                -32000,
                f"transaction underpriced: gas tip cap {sent.tip}, minimum needed {self.least_tip}",
            )

    # Blocks, transactions, receipts

    def block_json(self, block: Block, *, full: bool = False) -> dict[str, Any]:
        shown = super().block_json(block, full=full)
        own = [
            self.own_transaction(block, receipt) if full else receipt["transactionHash"]
            for receipt in self.own_receipts(block)
        ]
        extra = {
            "timestamp": hex(1_700_000_000 + int(block.number * self.block_seconds)),
            "difficulty": "0x0",
            "extraData": "0x",
            "gasUsed": hex(sum(self.gas_used(done.sent) for done in block.transactions)),
            "miner": hex_of(b"\x4e" * 20),
            "mixHash": hex_of(block.hash),
            "nonce": "0x0000000000000000",
            "receiptsRoot": hex_of(block.hash),
            "sha3Uncles": hex_of(block.hash),
            "size": "0x220",
            "stateRoot": hex_of(block.hash),
            "transactionsRoot": hex_of(block.hash),
            "uncles": [],
            "transactions": own + shown["transactions"],
        }
        return shown | extra | self.block_extras(block)

    def block_extras(self, block: Block) -> dict[str, Any]:
        return {
            "blobGasUsed": "0x20000",
            "excessBlobGas": "0x0",
            "parentBeaconBlockRoot": hex_of(block.hash),
            "requestsHash": hex_of(block.hash),
            "withdrawals": [
                {
                    "index": "0x1",
                    "validatorIndex": "0x2",
                    "address": hex_of(b"\x4f" * 20),
                    "amount": "0x3",
                }
            ],
            "withdrawalsRoot": hex_of(block.hash),
        }

    def receipt_json(self, block: Block, done: Done) -> dict[str, Any]:
        price = self.price_of(done.sent, block.base_fee)
        return {
            "type": "0x0" if done.sent.is_legacy else "0x2",
            "status": hex(done.succeeded),
            "cumulativeGasUsed": hex(self.gas_used(done.sent)),
            "logs": [
                log
                for log in logs_json(block, None)
                if log["transactionHash"] == hex_of(done.sent.hash)
            ],
            "logsBloom": NO_BLOOM,
            "transactionHash": hex_of(done.sent.hash),
            "transactionIndex": "0x1",
            "blockHash": hex_of(block.hash),
            "blockNumber": hex(block.number),
            "gasUsed": hex(self.gas_used(done.sent)),
            "effectiveGasPrice": hex(price),
            "from": hex_of(done.sent.sender),
            "to": hex_of(done.sent.to),
            "contractAddress": None,
        } | self.receipt_extras(block, done)

    def receipt_extras(self, block: Block, done: Done) -> dict[str, Any]:
        return {}

    def receipts_json(self, block: Block) -> list[dict[str, Any]]:
        own = self.own_receipts(block)
        mined = [self.receipt_json(block, done) for done in block.transactions]
        known = {receipt["transactionHash"] for receipt in own + mined}
        emitted: dict[str, list[dict[str, Any]]] = {}
        for log in logs_json(block, None):
            if log["transactionHash"] not in known:
                emitted.setdefault(log["transactionHash"], []).append(log)
        others = [
            self.own_receipt(block, 2, hex_of(b"\x50" * 20), logs[0]["address"])
            | {"transactionHash": hash_, "logs": logs}
            for hash_, logs in emitted.items()
        ]
        return own + mined + others

    def own_receipts(self, block: Block) -> list[dict[str, Any]]:
        """Receipts of the transactions that the chain itself puts into a block."""
        return []

    def own_receipt(self, block: Block, kind: int, sender: str, to: str) -> dict[str, Any]:
        return {
            "type": hex(kind),
            "status": "0x1",
            "cumulativeGasUsed": "0x0",
            "logs": [],
            "logsBloom": NO_BLOOM,
            "transactionHash": hex_of(keccak(b"own" + bytes((kind,)) + block.hash)),
            "transactionIndex": "0x0",
            "blockHash": hex_of(block.hash),
            "blockNumber": hex(block.number),
            "gasUsed": "0x0",
            "effectiveGasPrice": "0x0",
            "from": sender,
            "to": to,
            "contractAddress": None,
        }

    def own_transaction(self, block: Block, receipt: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": receipt["type"],
            "hash": receipt["transactionHash"],
            "from": receipt["from"],
            "to": receipt["to"],
            "nonce": "0x0",
            "value": "0x0",
            "gas": "0x0",
            "gasPrice": "0x0",
            "input": "0x",
            "blockHash": receipt["blockHash"],
            "blockNumber": receipt["blockNumber"],
            "transactionIndex": "0x0",
        }

    # Methods

    def _at(self, tag: Any) -> Block | None:
        if tag == "finalized" and self.final_depth is None:
            if self.no_final is None:
                return None
            raise RpcError(-39001 if self.no_final == "unknown block" else -32602, self.no_final)
        return super()._at(tag)

    def _transaction_receipt(self, transaction_hash: str) -> Any:
        known = super()._transaction_receipt(transaction_hash)
        if known is not None:
            return known
        return next(
            (
                receipt
                for block in self._seen()
                for receipt in self.receipts_json(block)
                if receipt["transactionHash"] == transaction_hash
            ),
            None,
        )

    def revert_unknown(self, data: bytes) -> RpcError:
        return RpcError(3, f"execution reverted: no function {hex_of(data[:4])}", b"")


class OpStackNode(ChainNode):
    """Base and OP Mainnet, as op-geth tells them after the upgrade Isthmus.

    `l1_wei_per_byte` is the price of the posted data; small transactions pay for 100 bytes.
    """

    block_seconds = 2.0
    l1_wei_per_byte = 2 * GWEI
    operator_fee_scalar = 0
    operator_fee_constant = 0
    is_before_fjord = False

    def __init__(self) -> None:
        super().__init__()
        self.base_fee, self.tip = GWEI // 200, GWEI // 1_000

    def l1_fee(self, size: int) -> int:
        return max(100, size) * self.l1_wei_per_byte

    def operator_fee(self, gas: int) -> int:
        """As of Isthmus; the upgrade Jovian multiplies by 100 instead."""
        return gas * self.operator_fee_scalar // 10**6 + self.operator_fee_constant

    def fee_beside_gas(self, sent: SentTransaction) -> int:
        return self.l1_fee(len(sent.raw)) + self.operator_fee(self.gas_used(sent))

    def _code(self, address: str, tag: str) -> str:
        return "0x6080" if address_of(address) == GAS_PRICE_ORACLE else super()._code(address, tag)

    def run_call(self, call: dict[str, str], block: Block) -> str:
        if address_of(call["to"]) != GAS_PRICE_ORACLE:
            return super().run_call(call, block)
        data = bytes_of(call["data"])
        number = int.from_bytes(data[4:36], "big")
        if data[:4] == selector("getL1FeeUpperBound(uint256)") and not self.is_before_fjord:
            return hex_of(self.l1_fee(number + 68).to_bytes(32, "big"))
        if data[:4] == selector("getOperatorFee(uint256)") and not self.is_before_fjord:
            return hex_of(self.operator_fee(number).to_bytes(32, "big"))
        if data[:4] == selector("getL1Fee(bytes)"):
            size = int.from_bytes(data[36:68], "big")
            return hex_of(self.l1_fee(size + 68).to_bytes(32, "big"))
        raise self.revert_unknown(data)

    def receipt_extras(self, block: Block, done: Done) -> dict[str, Any]:
        return {
            "l1Fee": hex(self.l1_fee(len(done.sent.raw))),
            "l1GasUsed": "0x640",
            "l1GasPrice": "0x50f928b4",
            "l1BaseFeeScalar": "0x8dd",
            "l1BlobBaseFee": "0x1",
            "l1BlobBaseFeeScalar": "0x101c12",
            "operatorFeeScalar": hex(self.operator_fee_scalar),
            "operatorFeeConstant": hex(self.operator_fee_constant),
            "daFootprintGasScalar": "0x190",
        }

    def own_receipts(self, block: Block) -> list[dict[str, Any]]:
        """Each block begins with a deposit that tells L1's attributes."""
        sender = "0xdeaddeaddeaddeaddeaddeaddeaddeaddead0001"
        deposit = self.own_receipt(block, 0x7E, sender, hex_of(b"\x42" + bytes(18) + b"\x15"))
        return [
            deposit
            | {"depositNonce": hex(block.number), "depositReceiptVersion": "0x1"}
            | {"l1Fee": "0x0", "l1GasPrice": "0x0", "l1GasUsed": "0x0", "gasUsed": "0xb44c"}
        ]

    def own_transaction(self, block: Block, receipt: dict[str, Any]) -> dict[str, Any]:
        return super().own_transaction(block, receipt) | {
            "sourceHash": hex_of(block.hash),
            "mint": "0x0",
            "isSystemTx": False,
            "v": "0x0",
            "r": "0x0",
            "s": "0x0",
        }

    def block_extras(self, block: Block) -> dict[str, Any]:
        return super().block_extras(block) | {
            "withdrawals": [],
            "extraData": "0x00000000fa00000006",
        }


class ArbitrumNode(ChainNode):
    """Arbitrum One, as Nitro tells it: no pool, no tips, and gas for the posted data.

    `l1_gas_per_byte` is that gas at the base fee of now. A simulation pays for no data.
    """

    block_seconds = 0.25
    least_tip = 0
    l1_gas_per_byte = 40
    block_gas_limit = 2**50

    def __init__(self) -> None:
        super().__init__()
        self.base_fee, self.tip = GWEI // 100, 0
        self.mines_at_once = True

    def price_of(self, sent: SentTransaction, base_fee: int) -> int:
        return base_fee

    def l1_gas(self, data: bytes) -> int:
        return (100 + len(data)) * self.l1_gas_per_byte

    def gas_used(self, sent: SentTransaction) -> int:
        own = 21_000 if sent.is_self_transfer else 50_000
        if sent.to == LTZ_AT:
            own = 60_000 + 30_000 * (len(sent.data) // 96)
        return min(sent.gas_limit, own + self.l1_gas(sent.data))

    def _execute(self, parent: Block, nonces: Any, used: Any) -> Iterator[Done]:
        for done in super()._execute(parent, nonces, used):
            is_out_of_gas = self.gas_used(done.sent) == done.sent.gas_limit
            assert not is_out_of_gas or done.sent.is_self_transfer, "the gas limit is too low"
            yield done

    def check_form(self, sent: SentTransaction) -> None:
        if sent.gas_limit < 21_000 + self.l1_gas(sent.data):
            raise RpcError(-32000, "intrinsic gas too low")
        if sent.max_fee_per_gas < self.base_fee:
            raise RpcError(
                -32000,
                f"max fee per gas less than block base fee: address {hex_of(sent.sender)}, "
                f"maxFeePerGas: {sent.max_fee_per_gas}, baseFee: {self.base_fee}",
            )
        expected = self.head.nonces.get(sent.sender, 0)
        if sent.nonce > expected:
            raise RpcError(
                -32000,
                f"nonce too high: address {hex_of(sent.sender)}, tx: {sent.nonce} "
                f"state: {expected}",
            )

    def _code(self, address: str, tag: str) -> str:
        return "0xfe" if address_of(address) == ARB_SYS else super()._code(address, tag)

    def run_call(self, call: dict[str, str], block: Block) -> str:
        data = bytes_of(call["data"])
        if address_of(call["to"]) == NODE_INTERFACE:
            if data[:4] != selector("gasEstimateL1Component(address,bool,bytes)"):
                raise self.revert_unknown(data)
            size = int.from_bytes(data[100:132], "big")
            words = (self.l1_gas(bytes(size)), self.base_fee, 30 * GWEI)
            return hex_of(b"".join(word.to_bytes(32, "big") for word in words))
        return super().run_call(call, block)

    def _estimate_gas(self, call: dict[str, str], tag: Any = "latest") -> str:
        estimate = int(super()._estimate_gas(call, tag), 16)
        return hex(estimate + self.l1_gas(bytes_of(call["data"])))

    def receipt_extras(self, block: Block, done: Done) -> dict[str, Any]:
        return {
            "gasUsedForL1": hex(self.l1_gas(done.sent.data)),
            "l1BlockNumber": "0x1323b96",
            "timeboosted": False,
            "l1Fee": None,
            "l1FeeScalar": None,
            "l1GasPrice": None,
            "l1GasUsed": None,
        }

    def own_receipts(self, block: Block) -> list[dict[str, Any]]:
        """Each block begins with an internal transaction; a deposit and a retryable may follow."""
        internal = "0x00000000000000000000000000000000000a4b05"
        kinds = (0x6A, 0x64, 0x69, 0x68) if block.number % 2 else (0x6A,)
        return [
            self.own_receipt(block, kind, internal, internal)
            | {"gasUsedForL1": "0x0", "l1BlockNumber": "0x1323b96"}
            for kind in kinds
        ]

    def own_transaction(self, block: Block, receipt: dict[str, Any]) -> dict[str, Any]:
        extra = {"requestId": hex_of(block.hash), "ticketId": hex_of(block.hash), "chainId": "0x1"}
        return super().own_transaction(block, receipt) | extra

    def block_extras(self, block: Block) -> dict[str, Any]:
        return {
            "difficulty": "0x1",
            "gasLimit": hex(2**50),
            "l1BlockNumber": "0x1323b96",
            "sendCount": "0x27a11",
            "sendRoot": hex_of(block.hash),
            "nonce": "0x00000000001fb2e5",
        }


class PolygonNode(ChainNode):
    """Polygon, as Bor tells it: a least tip, and state-sync transactions that no bloom holds."""

    block_seconds = 2.0
    least_tip = 25 * GWEI
    no_final = "finalized block not found"

    def __init__(self) -> None:
        super().__init__()
        self.base_fee, self.tip = 30 * GWEI, 30 * GWEI
        self.block_gas_limit = 45_000_000

    def own_receipts(self, block: Block) -> list[dict[str, Any]]:
        if block.number % 4:
            return []
        receipt = self.own_receipt(block, 0, ZERO_ADDRESS, ZERO_ADDRESS)
        state_received = {
            "address": hex_of(bytes(18) + b"\x10\x01"),
            "topics": [hex_of(keccak(b"StateCommitted(uint256,bool)"))],
            "data": hex_of((1).to_bytes(32, "big")),
            "blockNumber": hex(block.number),
            "blockHash": hex_of(block.hash),
            "transactionHash": receipt["transactionHash"],
            "transactionIndex": "0x0",
            "logIndex": hex(len(logs_json(block, None))),
            "removed": False,
        }
        return [receipt | {"contractAddress": ZERO_ADDRESS, "logs": [state_received]}]

    def own_transaction(self, block: Block, receipt: dict[str, Any]) -> dict[str, Any]:
        signature = {"v": "0x0", "r": "0x0", "s": "0x0"}
        return super().own_transaction(block, receipt) | signature

    def block_extras(self, block: Block) -> dict[str, Any]:
        return {"difficulty": "0x15", "totalDifficulty": "0x4c4b40", "author": ZERO_ADDRESS}


class BnbNode(ChainNode):
    """BNB Smart Chain: a base fee of zero, several blocks a second, unpaid system transactions."""

    block_seconds = 0.45
    least_tip = GWEI // 20

    def __init__(self) -> None:
        super().__init__()
        self.base_fee, self.tip = 0, GWEI // 10
        self.block_gas_limit = 55_000_000

    def own_receipts(self, block: Block) -> list[dict[str, Any]]:
        """The validator pays itself at the end of each block."""
        validator = hex_of(bytes(18) + b"\x10\x00")
        return [self.own_receipt(block, 0, hex_of(b"\x4e" * 20), validator)]

    def block_extras(self, block: Block) -> dict[str, Any]:
        milliseconds = 1_700_000_000_000 + int(block.number * 1_000 * self.block_seconds)
        return super().block_extras(block) | {
            "difficulty": "0x2",
            "totalDifficulty": "0x1678146",
            "milliTimestamp": hex(milliseconds),
            "withdrawals": [],
        }


class LegacyNode(ChainNode):
    """A chain from before EIP-1559: one gas price, and a client that lacks newer methods."""

    block_seconds = 3.0
    is_legacy = True
    no_final = "invalid argument 0: hex string without 0x prefix"

    def __init__(self) -> None:
        super().__init__()
        self.base_fee, self.tip = 0, 5 * GWEI
        self.least_tip = GWEI
        self.final_depth = None

    def _answered(self) -> dict[str, Any]:
        missing = {
            "eth_feeHistory",
            "eth_maxPriorityFeePerGas",
            "eth_getBlockReceipts",
        }
        return {
            method: self._missing(method) if method in missing else answer
            for method, answer in super()._answered().items()
        }

    def _missing(self, method: str) -> Any:
        def refuse(*_params: object) -> None:
            text = f"the method {method} does not exist/is not available"
            raise RpcError(_METHOD_NOT_FOUND, text)

        return refuse

    def check_form(self, sent: SentTransaction) -> None:
        if not sent.is_legacy:
            raise RpcError(-32000, "transaction type not supported")
        if sent.max_fee_per_gas < self.least_tip:
            raise RpcError(-32000, "transaction underpriced")

    def price_of(self, sent: SentTransaction, base_fee: int) -> int:
        return sent.max_fee_per_gas

    def block_json(self, block: Block, *, full: bool = False) -> dict[str, Any]:
        shown = super().block_json(block, full=full)
        del shown["baseFeePerGas"]
        return shown

    def block_extras(self, block: Block) -> dict[str, Any]:
        return {"difficulty": "0x2", "totalDifficulty": "0x1678146"}

    def receipt_json(self, block: Block, done: Done) -> dict[str, Any]:
        shown = super().receipt_json(block, done)
        del shown["effectiveGasPrice"], shown["type"]
        return shown


CHAINS: dict[str, type[ChainNode]] = {
    "ethereum": ChainNode,
    "op_stack": OpStackNode,
    "arbitrum": ArbitrumNode,
    "polygon": PolygonNode,
    "bnb": BnbNode,
    "legacy": LegacyNode,
}


@asynccontextmanager
async def served(fake: FakeNode) -> AsyncIterator[Rpc]:
    """Serves the fake over HTTP, and lets its `node` ask it there."""

    async def reply(request: web.Request) -> web.Response:
        body = await request.json()
        answer = (
            [await _answer(fake, call) for call in body]
            if isinstance(body, list)
            else await _answer(fake, body)
        )
        return web.Response(body=json.dumps(answer).encode(), content_type="application/json")

    application = web.Application(client_max_size=2**24)
    application.router.add_post("/", reply)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Rpc(f"http://127.0.0.1:{runner.addresses[0][1]}") as rpc:
            fake.node = Node(rpc)
            yield rpc
    finally:
        await runner.cleanup()


async def _answer(fake: FakeNode, call: dict[str, Any]) -> dict[str, Any]:
    known = {"jsonrpc": "2.0", "id": call["id"]}
    try:
        return known | {"result": await fake.call(call["method"], *call["params"])}
    except RpcError as error:
        shown: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            shown["data"] = hex_of(error.data)
        return known | {"error": shown}
