"""A fake node whose answers about logs are reordered, doubled, or without a block's logs."""

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
