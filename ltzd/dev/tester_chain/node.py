"""What a method may use, and the table that methods enter themselves into."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ltzd.dev.tester_chain.chain import Chain
from ltzd.dev.tester_chain.miner import Miner
from ltzd.dev.tester_chain.params import Params


@dataclass(frozen=True)
class Node:
    chain: Chain
    miner: Miner


Handler = Callable[[Node, Params], Awaitable[object]]


@dataclass(frozen=True)
class Method:
    handle: Handler
    params_at_most: int


METHODS: Final[dict[str, Method]] = {}


def method(*names: str, params_at_most: int = 0) -> Callable[[Handler], Handler]:
    """Enter a handler under its names; more parameters than said are refused, as by geth."""

    def enter(handle: Handler) -> Handler:
        METHODS.update(dict.fromkeys(names, Method(handle, params_at_most)))
        return handle

    return enter
