"""The filter of eth_getLogs and of log subscriptions: addresses, and topics by position."""

from collections.abc import Iterator, Mapping

import msgspec

from ltzd.dev.tester_chain.errors import invalid_parameter
from ltzd.dev.tester_chain.execution.block import MinedBlock, MinedLog
from ltzd.dev.tester_chain.json_rpc.params import address, hash32
from ltzd.values import Address, Hash32

_TOPICS_AT_MOST = 4


class LogFilter(msgspec.Struct, frozen=True):
    """A field that is None matches every address or topic; so does an empty list, as in geth."""

    addresses: frozenset[Address] | None
    topics: tuple[frozenset[Hash32] | None, ...]

    def logs_of(self, block: MinedBlock) -> Iterator[MinedLog]:
        if block.bloom and self._may_be_in(block):
            yield from (log for log in block.logs if self._matches(log))

    def _may_be_in(self, block: MinedBlock) -> bool:
        alternatives = [values for values in (self.addresses, *self.topics) if values is not None]
        return all(any(block.may_hold(value) for value in values) for values in alternatives)

    def _matches(self, log: MinedLog) -> bool:
        if self.addresses is not None and log.address not in self.addresses:
            return False
        if len(self.topics) > len(log.topics):
            return False
        return all(
            allowed is None or topic in allowed
            for allowed, topic in zip(self.topics, log.topics, strict=False)
        )


def log_filter(fields: Mapping[str, object]) -> LogFilter:
    return LogFilter(_addresses(fields.get("address")), _topics(fields.get("topics")))


def _addresses(value: object) -> frozenset[Address] | None:
    if value is None or value == []:
        return None
    listed = value if isinstance(value, list) else [value]
    return frozenset(address(each, "address") for each in listed)


def _topics(value: object) -> tuple[frozenset[Hash32] | None, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid_parameter("topics", "expected a list")
    if len(value) > _TOPICS_AT_MOST:
        raise invalid_parameter("topics", "exceed max topics")
    return tuple(_position(each) for each in value)


def _position(value: object) -> frozenset[Hash32] | None:
    if value is None:
        return None
    listed = value if isinstance(value, list) else [value]
    if not listed or None in listed:
        return None
    return frozenset(hash32(each, "topics") for each in listed)
