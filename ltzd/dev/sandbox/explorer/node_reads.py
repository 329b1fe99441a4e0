"""The explorer's JSON-RPC reads, with typed answers.

Quantities in the structs are the node's 0x-hex text; `quantity` converts them. All reads raise
NodeUnavailable if the node does not answer, answers an error, or answers malformed data.
"""

from typing import TypeVar

import aiohttp
import msgspec

from ltzd.errors import NodeUnavailable
from ltzd.values import Address, hex_of

T = TypeVar("T")

_TIMEOUT_SECONDS = 5.0


def quantity(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise NodeUnavailable("The node's answer has a malformed number") from error


class RpcLog(msgspec.Struct, rename="camel"):
    address: str
    topics: list[str]
    data: str
    transaction_hash: str | None = None
    block_number: str | None = None


class RpcTransaction(msgspec.Struct, rename="camel"):
    hash: str
    sender: str = msgspec.field(name="from")
    nonce: str
    value: str
    gas: str
    input: str
    to: str | None = None
    block_number: str | None = None


class RpcReceipt(msgspec.Struct, rename="camel"):
    block_hash: str
    block_number: str
    gas_used: str
    logs: list[RpcLog]
    status: str | None = None
    contract_address: str | None = None
    effective_gas_price: str | None = None


class RpcBlock(msgspec.Struct, rename="camel"):
    number: str
    hash: str
    parent_hash: str
    timestamp: str
    gas_used: str
    transactions: list[str | RpcTransaction]


class NodeReads:
    def __init__(self, rpc_url: str) -> None:
        self._rpc_url = rpc_url
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def head(self) -> int:
        return quantity(await self._require(str, "eth_blockNumber"))

    async def chain_id(self) -> int:
        return quantity(await self._require(str, "eth_chainId"))

    async def transaction(self, tx_hash: str) -> RpcTransaction | None:
        return await self._read(RpcTransaction, "eth_getTransactionByHash", tx_hash)

    async def receipt(self, tx_hash: str) -> RpcReceipt | None:
        return await self._read(RpcReceipt, "eth_getTransactionReceipt", tx_hash)

    async def block(self, number: int, *, whole: bool = False) -> RpcBlock | None:
        return await self._read(RpcBlock, "eth_getBlockByNumber", hex(number), whole)

    async def balance(self, address: Address) -> int:
        return quantity(await self._require(str, "eth_getBalance", hex_of(address), "latest"))

    async def nonce(self, address: Address) -> int:
        return quantity(
            await self._require(str, "eth_getTransactionCount", hex_of(address), "latest")
        )

    async def code(self, address: Address) -> str:
        return await self._require(str, "eth_getCode", hex_of(address), "latest")

    async def call(self, to: Address, data: bytes) -> str:
        return await self._require(
            str, "eth_call", {"to": hex_of(to), "data": hex_of(data)}, "latest"
        )

    async def logs(self, address: Address, topics: list[str | None], since: int) -> list[RpcLog]:
        query = {"address": hex_of(address), "topics": topics, "fromBlock": hex(since)}
        return await self._require(list[RpcLog], "eth_getLogs", {**query, "toBlock": "latest"})

    async def _require(self, kind: type[T], method: str, *params: object) -> T:
        answer = await self._read(kind, method, *params)
        if answer is None:
            raise NodeUnavailable(f"The node's answer to {method} is malformed")
        return answer

    async def _read(self, kind: type[T], method: str, *params: object) -> T | None:
        result = await self._result(method, params)
        if result is None:
            return None
        try:
            return msgspec.convert(result, kind)
        except msgspec.ValidationError as error:
            raise NodeUnavailable(f"The node's answer to {method} is malformed") from error

    async def _result(self, method: str, params: tuple[object, ...]) -> object:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            async with self._open_session().post(
                self._rpc_url,
                data=msgspec.json.encode(request),
                headers={"Content-Type": "application/json"},
            ) as response:
                answer = msgspec.json.decode(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NodeUnavailable("The node does not answer") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NodeUnavailable("The node's answer is not JSON") from error
        if not isinstance(answer, dict) or answer.get("error") is not None:
            raise NodeUnavailable(f"The node refused {method}")
        return answer.get("result")

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self._session
