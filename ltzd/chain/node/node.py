"""Typed calls to a node, or to a pool of nodes. No other package reads a node's error texts.

Every call raises NodeUnavailable if the node does not answer or answers malformed data. Numbers
are ints, hashes bytes, fees wei per gas.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeAlias

from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Account, Header, Receipt, Revert
from ltzd.chain.node.block_refusals import lacks_block, refuses_hash
from ltzd.chain.node.log_entries import LogEntry, log_entries
from ltzd.chain.node.publish_outcomes import classify_publish_error
from ltzd.chain.node.refusals import RefusalKind
from ltzd.chain.node.rpc import RpcCall, RpcClient, RpcError
from ltzd.chain.proofs.headers import is_header_of
from ltzd.chain.proofs.receipts import are_receipts_of
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.rules.operator.fees import GasPrice
from ltzd.values import Address, Hash32, address_of, hash_of, hex_of

BlockRef: TypeAlias = Header | int | str
"""A block by its header, which names exactly that block (EIP-1898), by height, or by tag."""

_GAS_PRICE_CALLS: Sequence[RpcCall] = (
    ("eth_feeHistory", ("0x1", "latest", [])),
    ("eth_maxPriorityFeePerGas", ()),
)

_HEADERS_AT_ONCE = 200
_RECEIPTS_AT_ONCE = 200
_LARGE_BLOCK = 256
"""The number of transactions from which anvil is asked for a block's receipts in parts: anvil reads
the whole block for each receipt, and may answer nothing else until it has them all."""
_RECEIPTS_OF_ANVIL_AT_ONCE = 32


class Node:
    """Typed calls to one node, or to a pool that chooses a node for each request."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    def pinned(self) -> "Node":
        """One node, the best now, for reads that must fit together; it has no failover."""
        return Node(self._rpc.pinned())

    async def newest(self) -> tuple["Node", Header]:
        """A pinned node and its newest block: of the best node, or of the next if it is silent.

        Raises NodeUnavailable.
        """
        rpc, head = await self._rpc.newest(_newest_block)
        return Node(rpc), head

    def others(self, min_height: int = 0) -> list["Node"]:
        """The other usable nodes whose head is at least `min_height`, the best first.

        They give second opinions. Call it on a pinned node. Empty if there is no other node.
        """
        return [Node(rpc) for rpc in self._rpc.others(min_height)]

    def publishers(self) -> list["Node"]:
        """The nodes that a transaction may be published to, the best first; at least one.

        Raises NodeUnavailable if no node may be asked.
        """
        return [Node(rpc) for rpc in self._rpc.publishers()]

    @property
    def name(self) -> str:
        """The node's name in logs; for a pool that of the best node now.

        Raises NodeUnavailable if no node may be asked.
        """
        return self._rpc.limits.name

    @property
    def range_blocks(self) -> int:
        """The most blocks whose logs the node answers at once, as far as it has taught that."""
        return self._rpc.limits.range_blocks

    @property
    def is_alone(self) -> bool:
        """Whether no other node is usable: then time alone can confirm this node's answers."""
        return self._rpc.is_alone

    def report_contradiction(self, kind: str) -> None:
        """Report that this node contradicts itself or others; `kind` labels a metric."""
        self._rpc.report_contradiction(kind)

    def report_dispute(self, kind: str) -> None:
        """Report that this node and another one contradict each other, and neither is outvoted."""
        self._rpc.report_dispute(kind)

    def report_silence(self) -> None:
        """Report that this node did not answer in time."""
        self._rpc.report_silence()

    async def chain_id(self) -> int:
        return typed.number_of(await self._ask("eth_chainId"))

    async def chain_proof(self, contract: Address) -> tuple[int, Header | None, bytes]:
        """Chain id, block 0, and the code of a contract in the newest block, in one batch."""
        chain_id, genesis, code = await self._rpc.batch(
            [
                ("eth_chainId", ()),
                ("eth_getBlockByNumber", ("0x0", False)),
                ("eth_getCode", (hex_of(contract), "latest")),
            ]
        )
        return (
            typed.number_of(typed.checked(chain_id)),
            typed.header_of(typed.checked(genesis), 0),
            typed.data_of(typed.checked(code)),
        )

    async def block(self, at: int | str) -> Header | None:
        """The canonical header at a height or tag, or None if the node has no such block."""
        answer = await self._ask("eth_getBlockByNumber", _block(at), False)
        return typed.header_of(answer, at if isinstance(at, int) else None)

    async def head_and_final(self) -> tuple[Header, int | None]:
        """The newest header, and the height of `finalized` or None if the node lacks this tag."""
        head, final = await self._rpc.batch(
            [
                ("eth_getBlockByNumber", ("latest", False)),
                ("eth_getBlockByNumber", ("finalized", False)),
            ]
        )
        return typed.newest_header_of(head), typed.final_height_of(final)

    async def head_and_block(self, number: int) -> tuple[Header, Header | None]:
        """The newest header, and the canonical one at a height, in one batch."""
        head, block = await self._rpc.batch(
            [
                ("eth_getBlockByNumber", ("latest", False)),
                ("eth_getBlockByNumber", (hex(number), False)),
            ]
        )
        return typed.newest_header_of(head), typed.header_of(typed.checked(block), number)

    async def is_syncing(self) -> bool:
        """Whether the node says that it is still fetching the chain.

        Returns False for a node that does not know `eth_syncing`. Raises NodeUnavailable.
        """
        try:
            return bool(await self._rpc.call("eth_syncing"))
        except RpcError:
            return False

    async def head_and_next(
        self, first: int, last: int, *contracts: Address
    ) -> tuple[Header, int | None, list[Header | None], list[dict[str, Any]]]:
        """As `head_and_final` and `headers_and_logs`, in one batch.

        The logs are empty if the node refuses this range, for example because it lacks the blocks.
        The headers are empty, too, if the range is too large for the node.
        """
        head, final, *headers, logs = await self._rpc.batch(
            [
                ("eth_getBlockByNumber", ("latest", False)),
                ("eth_getBlockByNumber", ("finalized", False)),
                *_range_calls(first, last, contracts),
            ]
        )
        if isinstance(logs, RpcError) and typed.is_too_large(logs):
            headers = []
        return (
            typed.newest_header_of(head),
            typed.final_height_of(final),
            [
                typed.header_of(None if isinstance(each, RpcError) else each, first + offset)
                for offset, each in enumerate(headers)
            ],
            [] if isinstance(logs, RpcError) else typed.logs_of(logs, range(first, last + 1)),
        )

    async def headers(self, numbers: Sequence[int]) -> list[Header | None]:
        """Canonical headers at these heights, in one batch, or None for a block the node lacks."""
        answers = await self._rpc.batch(
            [("eth_getBlockByNumber", (hex(number), False)) for number in numbers]
        )
        return [
            typed.header_of(typed.checked(answer), number)
            for answer, number in zip(answers, numbers, strict=True)
        ]

    async def proven_ancestor(self, header: Header, number: int) -> Hash32 | None:
        """The hash of a block's ancestor at this height, which the blocks from there on prove.

        None if the node lacks one of them, or the chain encodes headers in its own way.
        """
        proved = header.hash
        heights = range(header.number, number, -1)
        for first in range(0, len(heights), _HEADERS_AT_ONCE):
            numbers = heights[first : first + _HEADERS_AT_ONCE]
            answers = await self._rpc.batch(
                [("eth_getBlockByNumber", (hex(each), False)) for each in numbers]
            )
            for block in map(typed.checked, answers):
                if not is_header_of(block, proved):
                    return None
                proved = hash_of(block["parentHash"])
        return proved

    async def proven_header(self, header: Header) -> Header | None:
        """The fields of a block that its hash proves.

        None if the node lacks the block, or the chain encodes headers in its own way.
        """
        block = await self._ask("eth_getBlockByNumber", hex(header.number), False)
        if not is_header_of(block, header.hash):
            return None
        return typed.header_of(block, header.number)

    async def full_blocks(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Canonical blocks at these heights with their transactions, as the node shows them."""
        answers = await self._rpc.batch(
            [("eth_getBlockByNumber", (hex(number), True)) for number in numbers]
        )
        blocks = [typed.checked(answer) for answer in answers]
        if not all(isinstance(block, dict) for block in blocks):
            raise NodeUnavailable("The node lacks a block", kind="behind")
        return blocks

    async def headers_and_logs(
        self, first: int, last: int, *contracts: Address
    ) -> tuple[list[Header | None], list[dict[str, Any]]]:
        """Headers of a range and the contracts' logs in it, in one batch.

        Raises RpcError if the node refuses the range, for example as too large.
        """
        *headers, logs = await self._rpc.batch(_range_calls(first, last, contracts))
        if isinstance(logs, RpcError):
            raise logs
        node_logs = typed.logs_of(logs, range(first, last + 1))
        numbered = zip(headers, range(first, last + 1), strict=True)
        return [
            typed.header_of(typed.checked(each), number) for each, number in numbered
        ], node_logs

    async def logs_up_to(
        self, first: int, last: int, *contracts: Address
    ) -> tuple[list[dict[str, Any]], Header | None]:
        """The contracts' logs in a range and the header of its last block, in one batch.

        Raises RpcError if the node refuses the range, for example as too large.
        """
        logs, header = await self._rpc.batch(
            [
                ("eth_getLogs", (_log_filter(contracts, first, last),)),
                ("eth_getBlockByNumber", (hex(last), False)),
            ]
        )
        if isinstance(logs, RpcError):
            raise logs
        node_logs = typed.logs_of(logs, range(first, last + 1))
        return node_logs, typed.header_of(typed.checked(header), last)

    async def range_logs(self, first: int, last: int, *contracts: Address) -> list[LogEntry]:
        """The contracts' logs in a range, whose texts are the node's and unchecked.

        Raises RpcError if the node refuses the range, for example as too large.
        """
        return log_entries(await self._rpc.call("eth_getLogs", _log_filter(contracts, first, last)))

    async def logs_of_block(self, block_hash: Hash32, *contracts: Address) -> list[dict[str, Any]]:
        """The contracts' logs in a block; from its receipts if the node refuses so many logs."""
        where = {
            "blockHash": hex_of(block_hash),
            "address": [hex_of(contract) for contract in contracts],
        }
        try:
            answer = await self._rpc.call("eth_getLogs", where)
            return typed.logs_of(answer, block_hash=block_hash)
        except RpcError as error:
            if typed.is_too_large(error):
                return await self.logs_by_receipts(block_hash, *contracts)
            raise typed.unavailable(error, "eth_getLogs: ") from error

    async def logs_by_receipts(
        self, block_hash: Hash32, *contracts: Address
    ) -> list[dict[str, Any]]:
        """The contracts' logs from the block's receipts: slower, but without an index that lags."""
        kept: list[dict[str, Any]] = []
        try:
            async for receipts in self._receipts_of_block(block_hash):
                logs = typed.logs_of_receipts(receipts, block_hash)
                kept += [log for log in logs if address_of(log["address"]) in contracts]
            return kept
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NodeUnavailable("The node has no proper receipts of a block it named") from error

    async def proven_logs(
        self, block_hash: Hash32, *contracts: Address
    ) -> tuple[list[dict[str, Any]], bool]:
        """As `logs_by_receipts`; also tells whether the block's hash proves that no log is missing.

        Not proved are also the logs of a chain that encodes its headers or receipts in its own way.
        """
        try:
            block = await self._ask("eth_getBlockByHash", hex_of(block_hash), False)
            if _is_large(block) and await self._is_anvil():
                hashes = block["transactions"]
                parts = self._receipts_in_parts(hashes, _RECEIPTS_OF_ANVIL_AT_ONCE)
            else:
                parts = self._receipts_of_block(block_hash)
            receipts = [receipt async for part in parts for receipt in part]
            logs = typed.logs_of_receipts(receipts, block_hash)
            kept = [log for log in logs if address_of(log["address"]) in contracts]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NodeUnavailable("The node has no proper receipts of a block it named") from error
        return kept, await are_receipts_of(block, receipts, block_hash)

    async def _receipts_of_block(self, block_hash: Hash32) -> AsyncIterator[list[Any]]:
        """The receipts in their order: all at once, or in parts if the node refuses so many.

        Raises TypeError or KeyError if the node has no such block or answers malformed data.
        """
        try:
            receipts = await self._rpc.call("eth_getBlockReceipts", hex_of(block_hash))
        except RpcError as error:
            kind = error.refusal.kind if error.refusal is not None else None
            if kind is not RefusalKind.UNSUPPORTED and not typed.is_too_large(error):
                raise typed.unavailable(error, "eth_getBlockReceipts: ") from error
        else:
            if not isinstance(receipts, list):
                raise TypeError("not a list")
            yield receipts
            return
        block = await self._ask("eth_getBlockByHash", hex_of(block_hash), False)
        async for part in self._receipts_in_parts(block["transactions"], _RECEIPTS_AT_ONCE):
            yield part

    async def _receipts_in_parts(
        self, hashes: Sequence[Any], at_once: int
    ) -> AsyncIterator[list[Any]]:
        for first in range(0, len(hashes), at_once):
            part = hashes[first : first + at_once]
            answers = await self._rpc.batch(
                [("eth_getTransactionReceipt", (hash_,)) for hash_ in part]
            )
            yield [typed.checked(answer) for answer in answers]

    async def _is_anvil(self) -> bool:
        traits = self._rpc.traits
        if traits.is_anvil is None:
            try:
                version = await self._rpc.call("web3_clientVersion")
            except RpcError:
                version = None
            traits.is_anvil = isinstance(version, str) and version.lower().startswith("anvil/")
        return traits.is_anvil

    async def receipts(self, hashes: Sequence[Hash32]) -> list[Receipt | None]:
        answers = await self._receipts(hashes)
        return [
            typed.receipt_of(typed.checked(answer), hash_)
            for answer, hash_ in zip(answers, hashes, strict=True)
        ]

    async def known_receipts(self, hashes: Sequence[Hash32]) -> list[Receipt]:
        """The receipts that the node has now.

        A missing one may be that of an old block, if the node has not indexed all blocks yet.
        """
        answers = await self._receipts(hashes)
        receipts = [
            typed.receipt_of(typed.checked(answer), hash_)
            for answer, hash_ in zip(answers, hashes, strict=True)
            if not typed.is_unindexed(answer)
        ]
        return [receipt for receipt in receipts if receipt is not None]

    async def _receipts(self, hashes: Sequence[Hash32]) -> list[Any]:
        return await self._rpc.batch(
            [("eth_getTransactionReceipt", (hex_of(hash_),)) for hash_ in hashes]
        )

    async def nonce(self, wallet: Address, at: BlockRef = "latest") -> int:
        """The number of transactions of `wallet` up to a block, or `pending`."""
        return typed.number_of(
            await self._read(at, "eth_getTransactionCount", hex_of(wallet)), typed.LARGEST_COUNT
        )

    async def pending_nonce(self, wallet: Address) -> int | None:
        """The nonce after the wallet's transactions in the node's pool, or None for an error.

        Some nodes answer with the nonce after their newest block. Raises NodeUnavailable if the
        node does not answer at all.
        """
        try:
            answer = await self._rpc.call("eth_getTransactionCount", hex_of(wallet), "pending")
        except RpcError:
            return None
        return typed.number_of(answer, typed.LARGEST_COUNT)

    async def pooled_nonces(self, wallet: Address) -> tuple[int, ...] | None:
        """The nonces of the wallet in the node's pool, in order; None if it does not show them.

        Public nodes seldom show their pool. Raises NodeUnavailable if the node does not answer.
        """
        try:
            answer = await self._rpc.call("txpool_contentFrom", hex_of(wallet))
        except RpcError:
            return None
        return typed.pool_nonces(answer)

    async def balance(self, wallet: Address, at: BlockRef = "latest") -> int:
        return typed.number_of(await self._read(at, "eth_getBalance", hex_of(wallet)))

    async def account(self, wallet: Address, at: BlockRef = "latest") -> Account:
        """Balance and nonce, in one request."""
        whose = (hex_of(wallet),)
        balance, nonce = await self._read_all(
            at, [("eth_getBalance", whose), ("eth_getTransactionCount", whose)]
        )
        return Account(
            typed.number_of(typed.checked(balance)),
            typed.number_of(typed.checked(nonce), typed.LARGEST_COUNT),
        )

    async def code(self, address: Address, at: BlockRef = "latest") -> bytes:
        return typed.data_of(await self._read(at, "eth_getCode", hex_of(address)))

    async def gas_price(self, head: Header) -> GasPrice:
        """The gas price of the block after `head`.

        If the node has no fee history, `head`'s base fee is used: the next one differs from it by
        an eighth at most. If the node suggests no tip, the tip is the excess of its gas price over
        the base fee.
        """
        if head.base_fee is None:
            return await self._price_without_base_fee()
        history, tip = await self._rpc.batch(_GAS_PRICE_CALLS)
        return await self._price(head.base_fee, history, tip)

    async def current_gas_price(self) -> GasPrice:
        """As `gas_price` for the newest block, in one batch with it."""
        head, history, tip = await self._rpc.batch(
            [("eth_getBlockByNumber", ("latest", False)), *_GAS_PRICE_CALLS]
        )
        header = typed.newest_header_of(head)
        if header.base_fee is None:
            return await self._price_without_base_fee()
        return await self._price(header.base_fee, history, tip)

    async def base_fees(self, head: Header, count: int) -> list[int]:
        """The base fees of `count` blocks up to `head`, the oldest first, and then the next one's.

        A node may answer with fewer blocks. Raises NodeUnavailable.
        """
        answer = await self._ask("eth_feeHistory", hex(count), hex(head.number), [])
        try:
            fees = [typed.quantity(fee) for fee in answer["baseFeePerGas"][-count - 1 :]]
        except (KeyError, TypeError, ValueError) as error:
            raise NodeUnavailable(
                "The node's fee history is malformed", kind="malformed"
            ) from error
        if len(fees) < 2:
            raise NodeUnavailable("The node's fee history is empty", kind="malformed")
        return fees

    async def _price(self, last_base_fee: int, history: Any, tip: Any) -> GasPrice:
        base_fee = (
            last_base_fee if isinstance(history, RpcError) else typed.next_base_fee_of(history)
        )
        if not isinstance(tip, RpcError):
            return GasPrice(base_fee, typed.number_of(tip))
        gas_price = typed.number_of(await self._ask("eth_gasPrice"))
        return GasPrice(base_fee, max(0, gas_price - base_fee))

    async def _price_without_base_fee(self) -> GasPrice:
        return GasPrice(0, typed.number_of(await self._ask("eth_gasPrice")), is_legacy=True)

    async def view(self, to: Address, data: bytes, at: BlockRef = "latest") -> bytes:
        """The result of a call after a block. Raises RpcError with the revert data."""
        (answer,) = await self.views([(to, data)], at)
        return answer

    async def views(
        self, calls: Sequence[tuple[Address, bytes]], at: BlockRef = "latest"
    ) -> list[bytes]:
        """The results of calls (to, data) after a block, in one batch.

        Raises RpcError for the first call that reverts.
        """
        answers = await self._read_all(at, _view_calls(calls))
        for answer in answers:
            if isinstance(answer, RpcError):
                raise answer
        return [typed.data_of(answer) for answer in answers]

    async def view_outcomes(
        self, calls: Sequence[tuple[Address, bytes]], at: BlockRef = "latest"
    ) -> list[bytes | Revert]:
        """As `views`, with a Revert in place of the result of a call that failed."""
        return [
            typed.revert_of(answer) if isinstance(answer, RpcError) else typed.data_of(answer)
            for answer in await self._read_all(at, _view_calls(calls))
        ]

    async def estimate_gas(
        self, to: Address, data: bytes, sender: Address, at: BlockRef | None = None
    ) -> int | Revert:
        """The gas that a call needs after a block, or how it would revert.

        Without `at` the node chooses the block: its newest one, or the pending one.
        """
        call = {"from": hex_of(sender), "to": hex_of(to), "data": hex_of(data)}
        if at is None:
            (answer,) = await self._outcomes([("eth_estimateGas", (call,))])
        else:
            (answer,) = await self._read_all(at, [("eth_estimateGas", (call,))])
            if isinstance(answer, RpcError) and refuses_hash(answer):
                # Some clients estimate after their newest block alone.
                (answer,) = await self._outcomes([("eth_estimateGas", (call,))])
        return (
            typed.revert_of(answer)
            if isinstance(answer, RpcError)
            else typed.number_of(answer, typed.LARGEST_COUNT)
        )

    async def simulate_call(
        self,
        to: Address,
        data: bytes,
        sender: Address,
        gas: int | None = None,
        at: BlockRef = "latest",
    ) -> Revert | None:
        """How a call with this gas limit would revert after a block; None if it would succeed."""
        call = {"from": hex_of(sender), "to": hex_of(to), "data": hex_of(data)}
        if gas is not None:
            call["gas"] = hex(gas)
        if isinstance(at, Header) and not self._rpc.traits.reads_by_hash:
            (answer,) = await self._read_by_height(at, [("eth_call", (call,))])
            return typed.failure_of(answer)
        try:
            typed.data_of(await self._rpc.batched_call("eth_call", call, _block(at)))
        except RpcError as error:
            answer = error
            if isinstance(at, Header):
                (answer,) = await self._checked_reads(at, [("eth_call", (call,))], [error])
            return typed.failure_of(answer)
        return None

    async def simulate(
        self,
        to: Address,
        calls: Sequence[bytes],
        sender: Address,
        gas: Sequence[int] | None = None,
        at: BlockRef = "latest",
    ) -> list[Revert | None]:
        """How each call alone would revert after a block, or None for a call that would succeed.

        `gas` holds the gas limit of each call; by default the node chooses it.
        """
        requests = [
            {"from": hex_of(sender), "to": hex_of(to), "data": hex_of(data)} for data in calls
        ]
        for request, limit in zip(requests, gas or (), strict=gas is not None):
            request["gas"] = hex(limit)
        answers = await self._read_all(at, [("eth_call", (each,)) for each in requests])
        return [typed.failure_of(answer) for answer in answers]

    async def publish(self, raw: bytes) -> tuple[PublishOutcome, str]:
        """Send signed bytes to the node; the text is the node's error message, for logs.

        Raises NodeUnavailable if the outcome is unknown: the bytes may have arrived.
        """
        try:
            await self._rpc.call("eth_sendRawTransaction", hex_of(raw))
        except RpcError as error:
            return classify_publish_error(error), error.message
        return PublishOutcome.ACCEPTED, ""

    async def publish_all(self, raws: Sequence[bytes]) -> list[tuple[PublishOutcome, str]]:
        """Send several transactions in order, in one batch.

        The outcome is UNKNOWN for bytes without an answer. Raises NodeUnavailable if the batch as a
        whole has no answer.
        """
        if len(raws) == 1:
            return [await self.publish(raws[0])]
        answers = await self._rpc.outcomes(
            [("eth_sendRawTransaction", (hex_of(raw),)) for raw in raws]
        )
        return [typed.publication_of(answer) for answer in answers]

    async def _read(self, at: BlockRef, method: str, *params: object) -> Any:
        """One read of state after a block; an error object means that the node cannot answer."""
        (answer,) = await self._read_all(at, [(method, params)])
        return typed.checked(answer)

    async def _read_all(self, at: BlockRef, calls: Sequence[RpcCall]) -> list[Any]:
        """The answers to calls that lack their last parameter, the block.

        A failed call's RpcError stands in place of its answer. Raises NodeUnavailable if the node
        does not hold exactly the block of a header.
        """
        if not isinstance(at, Header):
            return await self._outcomes(_after(calls, _block(at)))
        if not self._rpc.traits.reads_by_hash:
            return await self._read_by_height(at, calls)
        answers = await self._outcomes(_after(calls, _block(at)))
        return await self._checked_reads(at, calls, answers)

    async def _checked_reads(
        self, at: Header, calls: Sequence[RpcCall], answers: Sequence[Any]
    ) -> list[Any]:
        """Answers of reads by hash, read again by height from a node that knows no EIP-1898."""
        errors = [answer for answer in answers if isinstance(answer, RpcError)]
        if any(map(lacks_block, errors)):
            raise NodeUnavailable(f"The node does not hold block {at.number}", kind="behind")
        if not any(map(refuses_hash, errors)):
            return list(answers)
        by_height = await self._read_by_height(at, calls)
        errors = [answer for answer in by_height if isinstance(answer, RpcError)]
        # The same refusal of a plain height has another cause.
        self._rpc.traits.reads_by_hash = any(map(refuses_hash, errors))
        return by_height

    async def _read_by_height(self, at: Header, calls: Sequence[RpcCall]) -> list[Any]:
        """Reads at a height, which count only if the node's block there is still the header's."""
        height = hex(at.number)
        *answers, block = await self._rpc.batch(
            [*_after(calls, height), ("eth_getBlockByNumber", (height, False))]
        )
        header = typed.header_of(typed.checked(block), at.number)
        if header is None or header.hash != at.hash:
            raise NodeUnavailable(f"The node has another block {at.number}", kind="behind")
        return answers

    async def _outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        """As a batch; a single call goes alone."""
        if len(calls) != 1:
            return await self._rpc.batch(calls)
        try:
            return [await self._rpc.call(calls[0][0], *calls[0][1])]
        except RpcError as error:
            return [error]

    async def _ask(self, method: str, *params: object) -> Any:
        """A call for which an error object only means that the node cannot answer."""
        try:
            return await self._rpc.call(method, *params)
        except RpcError as error:
            raise typed.unavailable(error, f"{method}: ") from error


def _after(calls: Sequence[RpcCall], block: object) -> list[RpcCall]:
    return [(method, (*params, block)) for method, params in calls]


def _view_calls(calls: Sequence[tuple[Address, bytes]]) -> list[RpcCall]:
    return [("eth_call", ({"to": hex_of(to), "data": hex_of(data)},)) for to, data in calls]


def _block(at: BlockRef) -> str | dict[str, object]:
    if isinstance(at, Header):
        return {"blockHash": hex_of(at.hash), "requireCanonical": True}
    return at if isinstance(at, str) else hex(at)


def _range_calls(first: int, last: int, contracts: Sequence[Address]) -> list[RpcCall]:
    """The headers of a range, then the contracts' logs in it."""
    calls: list[RpcCall] = [
        ("eth_getBlockByNumber", (hex(number), False)) for number in range(first, last + 1)
    ]
    calls.append(("eth_getLogs", (_log_filter(contracts, first, last),)))
    return calls


def _log_filter(contracts: Sequence[Address], first: int, last: int) -> dict[str, Any]:
    addresses = [hex_of(contract) for contract in contracts]
    return {"address": addresses, "fromBlock": hex(first), "toBlock": hex(last)}


def _is_large(block: Any) -> bool:
    hashes = block.get("transactions") if isinstance(block, dict) else None
    return isinstance(hashes, list) and len(hashes) >= _LARGE_BLOCK


async def _newest_block(rpc: RpcClient) -> Header:
    head = await Node(rpc).block("latest")
    if head is None:
        raise NodeUnavailable("The node has no latest block", kind="malformed")
    return head
