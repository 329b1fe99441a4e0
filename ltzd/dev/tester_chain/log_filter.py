"""Which logs a caller asked for: addresses, and for each topic position any of a list."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ltzd.dev.tester_chain.block import Block, Log
from ltzd.dev.tester_chain.errors import invalid_parameter
from ltzd.dev.tester_chain.params import address, hash32
from ltzd.values import Address, Hash32

_TOPICS_AT_MOST = 4


@dataclass(frozen=True)
class LogFilter:
    """None means any; an empty position list means any as well, as in geth."""

    addresses: frozenset[Address] | None
    topics: tuple[frozenset[Hash32] | None, ...]

    def logs_of(self, block: Block) -> Iterator[Log]:
        if block.bloom and self._may_be_in(block):
            yield from (log for log in block.logs if self._matches(log))

    def _may_be_in(self, block: Block) -> bool:
        wanted = [one for one in (self.addresses, *self.topics) if one is not None]
        return all(any(block.may_hold(value) for value in values) for values in wanted)

    def _matches(self, log: Log) -> bool:
        if self.addresses is not None and log.address not in self.addresses:
            return False
        if len(self.topics) > len(log.topics):
            return False
        return all(
            wanted is None or topic in wanted
            for wanted, topic in zip(self.topics, log.topics, strict=False)
        )


def log_filter(asked: Mapping[str, object]) -> LogFilter:
    return LogFilter(_addresses(asked.get("address")), _topics(asked.get("topics")))


def _addresses(value: object) -> frozenset[Address] | None:
    if value is None or value == []:
        return None
    listed = value if isinstance(value, list) else [value]
    return frozenset(address(one, "address") for one in listed)


def _topics(value: object) -> tuple[frozenset[Hash32] | None, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid_parameter("topics", "expected a list")
    if len(value) > _TOPICS_AT_MOST:
        raise invalid_parameter("topics", "exceed max topics")
    return tuple(_position(one) for one in value)


def _position(value: object) -> frozenset[Hash32] | None:
    if value is None:
        return None
    listed = value if isinstance(value, list) else [value]
    if not listed or None in listed:
        return None
    return frozenset(hash32(one, "topics") for one in listed)
