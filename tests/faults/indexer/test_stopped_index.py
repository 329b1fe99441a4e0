"""An impossible fact stops the index of a whole instance: HTTP answers, and a repair clears it."""

from uuid import uuid4

from tests.support.commands import ltzd
from tests.support.instances.books import LTZ, assert_books_agree
from tests.support.instances.instance import Instance
from tests.support.instances.relayer import User, relays_of
from tests.support.instances.shared import Instances
from tests.support.relays.calls import call
from tests.support.waiting import until

_STOPPED = "SELECT stopped_reason FROM chains"


async def test_a_stopped_index_leaves_http_alive_until_a_repair_clears_it(
    instances: Instances,
) -> None:
    """The index has lost a receipt of LTZ in a block that was audited, and its owner spends it."""
    instance = await instances.of("anvil")
    async with relays_of(instance) as relays:
        user = await relays.welcomed()
        await lose_the_receipt(instance, user)
        friend = "0x" + "fe" * 20

        await relays.chain.send(user.account, "LTZ", call("LTZ", "transfer", friend, 7 * LTZ))
        reason = await until(lambda: instance.ask(_STOPPED))
        assert reason.endswith("Run: ltzd index repair --config FILE")

        url = f"http://127.0.0.1:{instance.admin_port}/readyz"
        async with instance.http.get(url) as ready:
            assert ready.status == 503
            assert reason in await ready.text()
        assert (await instance.status())["chain"]["stopped"] == reason
        answer = await instance.post_event(f"{uuid4().hex}@shop.example")
        assert answer.status == 200, answer.body
        assert (await instance.event(answer.event_id))["transactionHash"] == answer.hash
        assert await balance(instance, user.wallet) == 0, "reads are those of the last good block"

        repaired = await ltzd("index", "repair", "--data-dir", instance.data_dir)
        assert repaired.code == 0, repaired.err
        assert "The index was stopped, and continues now." in repaired.err
        await instance.minted(answer.event_id)
        assert await balance(instance, user.wallet) == 93 * LTZ
        async with instance.http.get(url) as ready:
            assert ready.status == 200, await ready.text()
    await assert_books_agree(instance, [answer])


async def lose_the_receipt(instance: Instance, user: User) -> None:
    """Deletes what the index knows of the user's LTZ, in a block that no audit reads again."""
    wallet = bytes.fromhex(user.wallet[2:])
    await until(lambda: instance.ask("SELECT 1 FROM balances WHERE wallet = $1", wallet))
    async with instance.database() as connection, connection.transaction():
        # The row of the chain keeps the indexer out meanwhile.
        await connection.execute("UPDATE chains SET audited_number = cursor_number")
        await connection.execute("DELETE FROM transfers WHERE recipient = $1", wallet)
        await connection.execute("DELETE FROM balances WHERE wallet = $1", wallet)


async def balance(instance: Instance, wallet: str) -> int:
    query = "SELECT coalesce(sum(amount), 0) FROM balances WHERE wallet = $1"
    return int(await instance.ask(query, bytes.fromhex(wallet[2:])))
