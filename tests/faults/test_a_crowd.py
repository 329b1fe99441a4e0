"""Two hundred users at once."""

import asyncio
from uuid import UUID, uuid4

from tests.support.books import LTZ, all_minted, assert_books_agree, indexed_balances
from tests.support.instance import Instance

USERS = 200


async def test_a_crowd_of_users_is_paid_in_few_transactions_and_every_balance_is_right(
    instance: Instance,
) -> None:
    crowd = uuid4().hex
    emails = [f"{number}-{crowd}@shop.example" for number in range(USERS)]
    answers = await asyncio.gather(*map(instance.post_event, emails))

    assert {answer.status for answer in answers} == {200}
    assert all(answer.hash for answer in answers)
    assert len({answer.body["walletAddress"] for answer in answers}) == USERS
    await all_minted(instance)
    balances = await indexed_balances(instance)
    assert {balances[answer.body["walletAddress"].lower()] for answer in answers} == {100 * LTZ}
    await assert_books_agree(instance, answers)
    used = await instance.ask(
        "SELECT count(DISTINCT transaction_id) FROM rewards WHERE id = ANY($1::uuid[])",
        [UUID(answer.event_id) for answer in answers],
    )
    assert used < 20, f"{used} transactions for {USERS} rewards"
