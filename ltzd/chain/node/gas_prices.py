"""Compares a gas price with other nodes' before a lane waits for it, or pays an absurd one."""

from ltzd.chain.node.node import Node
from ltzd.chain.node.second_opinions import Question, compare_with_others
from ltzd.rules.operator.fees import (
    FeePolicy,
    GasPrice,
    are_far_apart,
    highest_payable,
    with_lowest_tip,
)

GAS_PRICE = "gas_price"
"""A node's base fee is far from those of other nodes."""


async def prevailing_gas_price(
    node: Node, own: GasPrice, policy: FeePolicy, *, is_too_low: bool = False
) -> GasPrice:
    """The price that prevails among several nodes, with the lowest tip that any of them gave.

    `node` is pinned, and has given the price `own`. Of two prices the lower one counts, or the
    higher one within the cap if `is_too_low`: transactions at the price `own` are not mined. With
    one node the price stays: the cap bounds the cost of it.
    """
    question: Question[GasPrice] = Question(
        ask=lambda other: other.current_gas_price(),
        leniency=highest_payable(policy) if is_too_low else lambda price: -price.least,
        contradict=lambda first, second: are_far_apart(first, second, policy),
        kind=GAS_PRICE,
    )
    compared = await compare_with_others(node, own, question)
    return with_lowest_tip(compared.answer, compared.answers)
