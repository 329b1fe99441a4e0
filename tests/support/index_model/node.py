"""A fake node whose answers about logs are reordered, doubled, or without a block's logs."""

from collections.abc import Callable
from typing import Any

from tests.support.chain.fake_node import FakeNode


class LogFaultsNode(FakeNode):
    """Answers by range are faulty; answers by block hash and receipts are whole."""

    doubles_logs = False
    """True: every log comes twice, in reverse order."""
    omitted_contracts = 0
    """Answers from now on that lack the logs of one contract in their last block with logs."""

    def _logs(self, where: dict[str, Any]) -> Any:
        logs = super()._logs(where)
        if "blockHash" in where or not logs:
            return logs
        if self.omitted_contracts:
            self.omitted_contracts -= 1
            gone = (logs[-1]["blockHash"], logs[-1]["address"])
            logs = [log for log in logs if (log["blockHash"], log["address"]) != gone]
        return [*reversed(logs), *logs] if self.doubles_logs else logs


LogKey = tuple[str, str]
"""A log's block hash and index, as the node answers them."""


class LyingNode(LogFaultsNode):
    """Hides, changes or invents logs in all its answers, and mostly has no blooms that would tell.

    `lies` gives by a log's key what is answered in its place; with None the log is hidden.
    `invented` logs are answered beside the true ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lies: dict[LogKey, Callable[[dict[str, Any]], dict[str, Any] | None]] = {}
        self.invented: list[dict[str, Any]] = []
        self.has_blooms = False

    def _answered(self) -> dict[str, Callable[..., Any]]:
        methods = super()._answered()
        return methods | {
            "eth_getBlockByNumber": lambda *ask: self._block_answer(self._block_by_number(*ask)),
            "eth_getBlockByHash": lambda *ask: self._block_answer(self._block_by_hash(*ask)),
            "eth_getBlockReceipts": self._false_receipts,
        }

    def _logs(self, where: dict[str, Any]) -> Any:
        logs = self._false(super()._logs(where))
        if "blockHash" in where:
            return logs + [log for log in self.invented if log["blockHash"] == where["blockHash"]]
        first, last = int(where["fromBlock"], 16), int(where["toBlock"], 16)
        return logs + [log for log in self.invented if first <= int(log["blockNumber"], 16) <= last]

    def _false_receipts(self, block_hash: str) -> Any:
        receipts = [
            {**receipt, "logs": self._false(receipt["logs"])}
            for receipt in self._block_receipts(block_hash)
        ]
        invented = [log for log in self.invented if log["blockHash"] == block_hash]
        return [*receipts, {"logs": invented}] if invented else receipts

    def _false(self, logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        answers = []
        for log in logs:
            lie = self.lies.get((log["blockHash"], log["logIndex"]))
            answer = log if lie is None else lie(log)
            if answer is not None:
                answers.append(answer)
        return answers

    def _block_answer(self, block: dict[str, Any] | None) -> dict[str, Any] | None:
        if block is None or self.has_blooms:
            return block
        return {**block, "logsBloom": "0x" + "00" * 256}
