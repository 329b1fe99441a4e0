"""Compares a gas price with other nodes' before a lane waits for it, or pays an absurd tip."""

from ltzd.chain.node.node import Node
from ltzd.chain.node.second_opinions import Question, compare_with_others
from ltzd.rules.operator.fees import FeePolicy, GasPrice, are_far_apart, with_lowest_tip

GAS_PRICE = "gas_price"
"""A node's base fee is far from those of other nodes."""


async def prevailing_gas_price(node: Node, own: GasPrice, policy: FeePolicy) -> GasPrice:
    """The base fee that prevails among several nodes, with the lowest tip that any of them gave.

    `node` is pinned, and has given the price `own`. With one node the price stays: the cap bounds
    the cost of it.
    """
    question: Question[GasPrice] = Question(
        ask=lambda other: other.current_gas_price(),
        leniency=lambda price: -price.base_fee,
        contradict=lambda first, second: are_far_apart(first, second, policy),
        kind=GAS_PRICE,
    )
    compared = await compare_with_others(node, own, question)
    return with_lowest_tip(compared.answer, compared.answers)
