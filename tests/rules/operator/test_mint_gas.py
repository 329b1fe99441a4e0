"""A mint that ran out of gas comes back in smaller batches and with more gas each time."""

import pytest

from ltzd.rules.operator.mint_gas import gas_percent_after, most_together, ran_out_of_gas


@pytest.mark.parametrize(
    ("used", "limit", "is_out"),
    [(64_000, 64_000, True), (63_000, 64_000, True), (62_999, 64_000, False), (0, 64_000, False)],
)
def test_a_call_within_leaves_a_64th_of_the_gas(used: int, limit: int, is_out: bool) -> None:
    assert ran_out_of_gas(used, limit) is is_out


def test_batches_shrink_and_limits_double_with_every_failed_mint() -> None:
    assert [most_together(failed, 100) for failed in range(4)] == [100, 10, 1, 1]
    assert [most_together(failed, 5) for failed in range(3)] == [5, 5, 1]
    assert [gas_percent_after(failed) for failed in range(4)] == [100, 200, 400, 800]
