"""Relays through kill -9, reorgs, late blocks, and an outage of the identity provider.

The seed of the moments is printed; LTZD_TEST_SEED repeats a run.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from eth_account import Account

from tests.support.chain.tester import GWEI
from tests.support.instances.asks import Ask
from tests.support.instances.books import all_minted
from tests.support.instances.instance import Instance
from tests.support.instances.relayer import (
    A_WELCOME,
    FREE,
    HOURLY,
    LTZ,
    Answer,
    Relays,
    User,
    relays_of,
)
from tests.support.instances.shared import Instances
from tests.support.relays.calls import call
from tests.support.relays.signing import transfer
from tests.support.waiting import until

FOLLOWED_SECONDS = 3.0
BACK_SECONDS = 20.0
USERS = 8


@pytest_asyncio.fixture
async def relays(instance: Instance) -> AsyncIterator[Relays]:
    """Relays on each kind of chain."""
    async with relays_of(instance) as relays:
        yield relays


@pytest_asyncio.fixture
async def tester_relays(instances: Instances) -> AsyncIterator[Relays]:
    """Relays on the tester chain, which mines the higher tip first; dev mode's anvil does not."""
    async with relays_of(await instances.of("tester")) as relays:
        yield relays


async def asks_of(relays: Relays, friend: str) -> list[Ask]:
    """Two relays per user: a claim, which is serialized, and a transfer, which is not."""
    asks = []
    for user in await relays.all_welcomed(USERS):
        sent = await transfer(relays.chain, user.account, user.wallet, friend, LTZ)
        asks.append(Ask(user, "PerkNFT", relays.claim(user), "the claim"))
        asks.append(Ask(user, "LTZ", sent, "the transfer"))
    return asks


@pytest.mark.parametrize(("kind", "kills"), [("tester", 2), ("anvil", 1)])
async def test_every_relay_has_one_outcome_through_kills(
    instances: Instances, kind: str, kills: int
) -> None:
    seed = int(os.environ.get("LTZD_TEST_SEED") or time.time_ns())
    print(f"seed {seed}")
    moments, friend = random.Random(seed), Account.create().address
    async with relays_of(await instances.of(kind)) as relays:
        waves = [await asks_of(relays, friend) for _ in range(kills)]
        asks = [ask for wave in waves for ask in wave]
        begun, block = await relays.chain.published(), await relays.instance.rpc.number()
        async with relays.chain.mining_every_second():
            for number in range(1, kills + 1):
                known = [ask for wave in waves[:number] for ask in wave]
                await kill_during(relays, known, moments)
            done = await asyncio.gather(*(ask.outcome(relays) for ask in asks))

        assert all(done)
        await asyncio.gather(*(ask.ask(relays) for ask in asks))
        for ask in asks:
            ask.answers[-1].assert_relayed(ask.answers[-1].body["status"])
        await assert_each_once(relays, asks, begun, block)
        assert await relays.chain.balance(friend) == kills * USERS * LTZ
        assert await relays.instance.ask(_UNACCOUNTED) == 0


_UNACCOUNTED = """
SELECT count(*)
  FROM (SELECT gas_day AS day, account, sum(gas_wei) AS wei
          FROM relays
         CROSS JOIN LATERAL unnest(ARRAY['', identity]) AS each (account)
         WHERE account IS NOT NULL
         GROUP BY 1, 2) AS rows
  FULL JOIN (SELECT day, identity AS account, sum(wei) AS wei
               FROM gas_spent GROUP BY 1, 2) AS sums USING (day, account)
 WHERE coalesce(rows.wei, 0) <> coalesce(sums.wei, 0)
"""
"""Gas accounts whose daily sum differs from that of their relays."""


async def kill_during(relays: Relays, asks: list[Ask], moments: random.Random) -> None:
    """Requests all relays concurrently, kills ltzd at a random moment, and starts it again."""
    asking = [asyncio.create_task(ask.ask(relays)) for ask in asks]
    await asyncio.sleep(moments.uniform(0, 1.2))
    await relays.instance.kill9()
    await asyncio.gather(*asking)
    await relays.instance.start_again()


async def assert_each_once(relays: Relays, asks: list[Ask], begun: int, block: int) -> None:
    """Checks that the operators sent exactly these transactions and that all succeeded."""
    sent = await relays.chain.sent_since(block)
    assert sorted(each["hash"] for each in sent) == sorted(ask.hash() for ask in asks)
    assert {each["status"] for each in sent} == {"0x1"}
    assert await relays.chain.mined() == begun + len(asks)
    assert await relays.chain.published() == begun + len(asks)
    for wallet in relays.chain.operators:
        nonces = sorted(int(each["nonce"], 16) for each in sent if each["from"].lower() == wallet)
        assert nonces == list(range(nonces[0], nonces[0] + len(nonces))) if nonces else True
    for ask in asks:
        assert await relays.chain.claims(ask.user.wallet, FREE) == 1


async def mine_what_is_published(relays: Relays, since: int) -> None:
    async def published() -> bool:
        return await relays.chain.published() > since

    await until(published)
    await relays.instance.rpc("evm_mine")


async def waiting_hash(relays: Relays) -> str | None:
    """The hash of the operators' only transaction in the node's pool."""
    pool = await relays.instance.rpc("txpool_content")
    hashes = [
        str(each["hash"])
        for wallet, by_nonce in pool["pending"].items()
        if wallet.lower() in relays.chain.operators
        for each in by_nonce.values()
    ]
    return hashes[0] if hashes else None


async def a_mined_claim(relays: Relays, user: User, data: bytes) -> Answer:
    """Relays while the chain mines only on request."""
    before = await relays.chain.published()
    asking = asyncio.create_task(relays.relay(user, "PerkNFT", data, key="claim"))
    await mine_what_is_published(relays, before)
    answer = await asking
    answer.assert_relayed()
    return answer


async def shown(relays: Relays, user: User, relay: str, *wanted: str) -> Answer | None:
    answer = await relays.get(relay, user)
    assert answer.status == 200, answer.body
    return answer if answer.body["status"] in wanted else None


async def shown_once_published(relays: Relays, user: User, relay: str) -> Answer | None:
    """Waits for ltzd to store the publication, which it does shortly after the node has it."""
    answer = await relays.get(relay, user)
    assert answer.status in {200, 404}, answer.body
    return answer if answer.status == 200 else None


async def test_a_relay_that_is_not_mined_yet_is_shown_as_pending(relays: Relays) -> None:
    await all_minted(relays.instance)
    user = await relays.user()
    async with relays.chain.mining_on_request():
        asking = asyncio.create_task(relays.relay(user, "PerkNFT", relays.claim(user)))
        relay = await until(lambda: waiting_hash(relays))
        assert relay is not None
        before = await until(lambda: shown_once_published(relays, user, relay))
        assert before is not None
        second = await relays.relay(user, "PerkNFT", relays.claim(user))
        await relays.instance.rpc("evm_mine")
        answer = await asking

    answer.assert_relayed()
    assert answer.hash == relay
    assert (before.status, before.body["status"]) == (200, "pending")
    assert before.hash == relay
    in_flight = {"collectionId": FREE, "currentClaims": 1, "maxPerUser": 1}
    assert second.assert_refused(409, "CLAIM_LIMIT_REACHED") == in_flight


async def test_a_relay_that_fails_on_chain_stays_failed(tester_relays: Relays) -> None:
    """The user's own transaction with a higher tip spends the LTZ first."""
    await all_minted(tester_relays.instance)
    user, friend = await tester_relays.welcomed(), Account.create().address
    data = await transfer(tester_relays.chain, user.account, user.wallet, friend, A_WELCOME)
    async with tester_relays.chain.mining_on_request():
        asking = asyncio.create_task(tester_relays.relay(user, "LTZ", data, key="late"))
        await until(lambda: waiting_hash(tester_relays))
        await tester_relays.chain.publish(
            user.account, "LTZ", call("LTZ", "transfer", friend, A_WELCOME)
        )
        await tester_relays.instance.rpc("evm_mine")
        answer = await asking

    details = answer.assert_refused(500, "TRANSACTION_FAILED")
    assert "ERC20InsufficientBalance" in details["reason"]
    receipt = await tester_relays.instance.rpc.receipt(details["transactionHash"])
    assert receipt["status"] == "0x0"
    assert int(receipt["blockNumber"], 16) == details["blockNumber"]
    assert await shown(tester_relays, user, details["transactionHash"], "failed")
    async with tester_relays.chain.nothing_published():
        again = await tester_relays.relay(user, "LTZ", data, key="late")
    assert again.assert_refused(500, "TRANSACTION_FAILED") == details
    # The failed relay was published, so it counts.
    assert [each.limits[:2] for each in (again, answer)] == [(HOURLY, HOURLY - 1)] * 2


async def test_above_the_fee_cap_nothing_is_relayed(tester_relays: Relays) -> None:
    """A relay that was accepted before the fees were noticed is published once they fall."""
    await all_minted(tester_relays.instance)
    user, rpc = await tester_relays.user(), tester_relays.instance.rpc
    held: list[asyncio.Task[Answer]] = []

    async def nothing_published_by_operators() -> Answer:
        """A valid relay, interchangeable with others."""
        data = await transfer(
            tester_relays.chain, user.account, user.wallet, tester_relays.brand, 0
        )
        return await tester_relays.relay(user, "LTZ", data)

    async def refusal() -> Answer | None:
        before = await tester_relays.chain.nonces()
        held.append(asyncio.create_task(nothing_published_by_operators()))
        done, _ = await asyncio.wait(held[-1:], timeout=1)
        if not done:
            return None
        assert await tester_relays.chain.nonces() == before, "an operator published a transaction"
        return held.pop().result()

    async with tester_relays.chain.mining_on_request():
        await rpc("anvil_setNextBlockBaseFeePerGas", hex(200 * GWEI))
        await rpc("evm_mine")
        answer = await until(refusal)
        await rpc("anvil_setNextBlockBaseFeePerGas", hex(GWEI))
    assert answer is not None
    details = answer.assert_refused(403, "VALIDATION_FAILED")
    assert details.keys() == {"gasPriceGwei", "maxGwei"}
    assert float(details["maxGwei"]) == 100
    assert float(details["gasPriceGwei"]) > 100

    async def is_relayed_again() -> bool:
        return (await nothing_published_by_operators()).status == 200

    await rpc("evm_mine")
    await until(is_relayed_again)
    assert {answer.status for answer in await asyncio.gather(*held)} <= {200}


async def test_a_relay_dropped_by_a_reorg_is_published_again(relays: Relays) -> None:
    await all_minted(relays.instance)
    user, rpc = await relays.user(), relays.instance.rpc
    data = relays.claim(user)
    async with relays.chain.mining_on_request():
        answer = await a_mined_claim(relays, user, data)
        await rpc("evm_mine")
        await rpc("evm_mine")
        assert await shown(relays, user, answer.hash, "confirmed")

        await rpc("anvil_reorg", 3, [])

        assert await relays.chain.claims(user.wallet, FREE) == 0, "the reorg kept the relay"
        pending = await until(lambda: shown(relays, user, answer.hash, "pending"), FOLLOWED_SECONDS)
        assert pending is not None
        assert pending.body.get("blockNumber") is None
        async with relays.chain.ticking():
            back = await until(lambda: shown(relays, user, answer.hash, "confirmed"), BACK_SECONDS)
    assert back is not None
    assert await relays.chain.claims(user.wallet, FREE) == 1
    receipt = await rpc.receipt(back.hash)
    assert receipt["blockNumber"] == hex(back.body["blockNumber"])
    again = await relays.relay(user, "PerkNFT", data, key="claim")
    assert (again.status, again.hash) == (200, back.hash)


async def test_a_reorg_while_ltzd_is_down_loses_no_relay(tester_relays: Relays) -> None:
    await all_minted(tester_relays.instance)
    user = await tester_relays.user()
    async with tester_relays.chain.mining_on_request():
        answer = await a_mined_claim(tester_relays, user, tester_relays.claim(user))
        await tester_relays.instance.kill9()
        await tester_relays.instance.rpc("anvil_reorg", 1, [])
        await tester_relays.instance.start_again()
        await until(lambda: shown(tester_relays, user, answer.hash, "pending"), FOLLOWED_SECONDS)
        async with tester_relays.chain.ticking():
            await until(lambda: shown(tester_relays, user, answer.hash, "confirmed"), BACK_SECONDS)

    assert await tester_relays.chain.claims(user.wallet, FREE) == 1


async def provider(relays: Relays, **fault: object) -> None:
    url = relays.instance.dev_json["sandbox"]["faultUrl"]
    order = {"service": "identity", **fault}
    async with relays.instance.http.post(url, json=order) as reply:
        assert reply.status == 200, await reply.text()


@pytest.mark.parametrize("fault", [{"drop": True}, {"status": 503}], ids=str)
async def test_tokens_are_checked_while_the_provider_is_down(
    tester_relays: Relays, fault: dict[str, object]
) -> None:
    known, fresh, unknown = await tester_relays.users(3)
    permit = await tester_relays.permit(known, "PerkNFT", LTZ)
    (await tester_relays.relay(known, "LTZ", permit.call)).assert_relayed()

    await provider(tester_relays, times=1_000_000, **fault)
    try:
        (await tester_relays.relay(known, "PerkNFT", tester_relays.claim(known))).assert_relayed()
        body = tester_relays.body(fresh, "PerkNFT", tester_relays.claim(fresh))
        (await tester_relays.post(body, fresh.identity_token)).assert_relayed()
        async with tester_relays.chain.nothing_published():
            forged = known.access_token[:-8] + "AAAAAAAA"
            (await tester_relays.post(body, forged)).assert_refused(401, "UNAUTHORIZED")
            # Only the provider can tell the owner of the wallet.
            answer = await tester_relays.relay(unknown, "PerkNFT", tester_relays.claim(unknown))
            assert answer.status in {500, 503}, answer.body
    finally:
        await provider(tester_relays, times=0)
    (await tester_relays.relay(unknown, "PerkNFT", tester_relays.claim(unknown))).assert_relayed()
