"""Checks an absurd tip with other nodes before a wallet pays it, or waits because of it."""

from contextlib import suppress

from ltzd.chain.node.node import Node
from ltzd.errors import NodeUnavailable
from ltzd.rules.operator.fees import FeePolicy, GasPrice, is_implausible, with_lowest_tip

_ASKED = 3
"""So many nodes are asked for their prices, beside the first answer."""


async def plausible_gas_price(node: Node, gas_price: GasPrice, policy: FeePolicy) -> GasPrice:
    """The gas price that `node` gave, with the lowest tip of several nodes if its tip is absurd.

    With one node the price stays: the cap bounds the cost of it.
    """
    if not is_implausible(gas_price, policy):
        return gas_price
    pinned = node.pinned()
    prices: list[GasPrice] = []
    for other in [pinned, *pinned.others()][:_ASKED]:
        with suppress(NodeUnavailable):
            prices.append(await other.current_gas_price())
    return with_lowest_tip(gas_price, prices)
