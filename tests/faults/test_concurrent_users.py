"""Two hundred concurrent users, and two hundred users at a steady rate."""

import asyncio
from uuid import UUID, uuid4

from tests.support.instances.books import LTZ, all_minted, assert_books_agree, indexed_balances
from tests.support.instances.instance import Answer, Instance

USERS = 200
CONNECTIONS = 50


def a_crowd() -> list[str]:
    """E-mail addresses of new users."""
    crowd = uuid4().hex
    return [f"{number}-{crowd}@shop.example" for number in range(USERS)]


async def transactions_for(instance: Instance, answers: list[Answer]) -> int:
    count: int = await instance.ask(
        "SELECT count(DISTINCT transaction_id) FROM rewards WHERE id = ANY($1::uuid[])",
        [UUID(answer.event_id) for answer in answers],
    )
    return count


async def assert_all_are_paid(instance: Instance, answers: list[Answer]) -> None:
    for answer in answers:
        answer.assert_timely()
    assert len({answer.body["walletAddress"] for answer in answers}) == USERS
    await all_minted(instance)
    balances = await indexed_balances(instance)
    assert {balances[answer.body["walletAddress"].lower()] for answer in answers} == {100 * LTZ}
    await assert_books_agree(instance, answers)


async def test_two_hundred_users_at_once_are_paid_in_few_transactions_and_every_balance_is_right(
    instance: Instance,
) -> None:
    crowd = a_crowd()
    answers = list(await asyncio.gather(*(instance.taken_event(email) for email in crowd)))

    await assert_all_are_paid(instance, answers)
    used = await transactions_for(instance, answers)
    assert used < 20, f"{used} transactions for {USERS} rewards"


async def test_a_steady_load_is_paid_in_few_transactions(instance: Instance) -> None:
    """Keeps fifty requests in flight, so that new rewards arrive all the time."""
    waiting = a_crowd()
    answers: list[Answer] = []

    async def client() -> None:
        while waiting:
            answers.append(await instance.taken_event(waiting.pop()))

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))

    await assert_all_are_paid(instance, answers)
    used = await transactions_for(instance, answers)
    assert used < 20, f"{used} transactions for {USERS} rewards"
