"""Typed calls to a node, or to a pool of nodes. No other package reads a node's error texts.

Here are the nodes themselves: which one is asked, what is reported about it, and publication. The
package `typed_calls` has the reads. Every call raises NodeUnavailable if the node does not answer
or answers malformed data. Numbers are ints, hashes bytes, fees wei per gas.
"""

from collections.abc import Sequence

from ltzd.chain.node.answers import typed
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.publish_outcomes import classify_publish_error
from ltzd.chain.node.rpc import RpcClient, RpcError
from ltzd.chain.node.typed_calls.accounts import AccountCalls
from ltzd.chain.node.typed_calls.blocks import BlockCalls
from ltzd.chain.node.typed_calls.executions import ExecutionCalls
from ltzd.chain.node.typed_calls.gas_prices import GasPriceCalls
from ltzd.chain.node.typed_calls.logs import LogCalls
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.values import Address, hex_of


class Node(BlockCalls, LogCalls, AccountCalls, GasPriceCalls, ExecutionCalls):
    """Typed calls to one node, or to a pool that chooses a node for each request."""

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

    async def is_syncing(self) -> bool:
        """Whether the node says that it is still fetching the chain.

        Returns False for a node that does not know `eth_syncing`. Raises NodeUnavailable.
        """
        try:
            return bool(await self._rpc.call("eth_syncing"))
        except RpcError:
            return False

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


async def _newest_block(rpc: RpcClient) -> Header:
    head = await Node(rpc).block("latest")
    if head is None:
        raise NodeUnavailable("The node has no latest block", kind="malformed")
    return head
