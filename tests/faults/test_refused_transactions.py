"""A transaction that the node refuses delays no other caller's mint or relay.

The first test is the attack: gas limits that no node accepts. The others use a node that
refuses chosen bytes for good, on both chains; decision 0021 says what happens to them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

import pytest
import pytest_asyncio
from rlp.codec import decode as rlp_decode

from ltzd.dev.services.chain import Kind
from tests.support.chain.chains import a_chain
from tests.support.chain.node_proxy import NodeProxy, a_node_proxy
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.instance import Instance, an_instance
from tests.support.instances.relayer import Relays, User, relays_of
from tests.support.instances.shared import Instances
from tests.support.services.postgres import Databases
from tests.support.waiting import until

FOR_GOOD = "tx fee (1.20 ether) exceeds the configured cap (1.00 ether)"
FINAL_AFTER = 66
"""The number of blocks until finality on the dev chains, with a margin."""


@pytest.mark.parametrize("kind", ["tester", "anvil"])
async def test_a_gas_limit_that_nodes_refuse_does_not_stop_the_relays_of_others(
    instances: Instances, kind: Kind
) -> None:
    async with relays_of(await instances.of(kind)) as relays:
        attacker, *others = await relays.users(4)
        async with relays.chain.nothing_published():
            for gas in (0, 1, 20_999, 21_000, 21_500):
                answer = await relays.relay(
                    attacker, "PerkNFT", relays.claim(attacker), gasLimit=gas, key=f"gas {gas}"
                )
                details = answer.assert_refused(403, "VALIDATION_FAILED")
                assert details["gasLimit"] == gas
                assert details["neededGas"] > 21_500
        for other in (attacker, *others):
            answer = await relays.relay(other, "PerkNFT", relays.claim(other))
            answer.assert_relayed()


class Refusing:
    """An instance whose node is behind a proxy that refuses chosen bytes."""

    def __init__(
        self, kind: Kind, instance: Instance, proxy: NodeProxy, rpc_url: str, relays: Relays
    ) -> None:
        self.kind = kind
        self.instance = instance
        self.proxy = proxy
        self.relays = relays
        self._rpc_url = rpc_url
        self.refused: set[str] = set()

    def refuse_next(self) -> None:
        """Refuses the next call of any wallet permanently, and no other transaction."""

        def refuses(raw: str) -> str | None:
            if not self.refused and not is_self_transfer(raw):
                self.refused.add(raw)
            return FOR_GOOD if raw in self.refused else None

        self.refused = set()
        self.proxy.refuses = refuses

    async def start_again(self) -> None:
        await self.instance.start_again()
        self.instance.dev_json["rpcUrl"] = self._rpc_url

    async def abandoned(self) -> None:
        """Waits until the self-transfer is stored."""

        async def stored() -> bool:
            sql = "SELECT count(*) > $1 FROM attempts WHERE is_cancellation"
            return bool(await self.instance.ask(sql, self._before))

        await until(stored, 60.0)

    async def note(self) -> None:
        self._before = await self.instance.ask(
            "SELECT count(*) FROM attempts WHERE is_cancellation"
        )

    async def finality(self) -> None:
        await self.instance.rpc("anvil_mine", hex(FINAL_AFTER))

    async def cancelled(self) -> bool:
        """Whether the nonce of the refused bytes is final and used by a self-transfer."""
        sql = "SELECT count(*) FROM transactions WHERE state = 'cancelled'"
        return bool(await self.instance.ask(sql) > self._before)


def is_self_transfer(raw: str) -> bool:
    fields = rlp_decode(bytes.fromhex(raw[4:]))  # type: ignore[no-untyped-call]
    return int.from_bytes(fields[4], "big") == 21_000 and fields[7] == b""


@asynccontextmanager
async def a_refusing(kind: Kind, databases: Databases) -> AsyncIterator[Refusing]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        database = await enter(databases.fresh())
        chain = await enter(a_chain(kind))
        proxy = await enter(a_node_proxy(chain.rpc_url))
        instance = await enter(an_instance("--rpc-url", proxy.url, "--database-url", database))
        instance.dev_json["rpcUrl"] = chain.rpc_url
        relays = await enter(relays_of(instance))
        yield Refusing(kind, instance, proxy, chain.rpc_url, relays)


@pytest_asyncio.fixture(scope="module", params=["tester", "anvil"])
async def refusing(request: pytest.FixtureRequest, databases: Databases) -> AsyncIterator[Refusing]:
    async with a_refusing(request.param, databases) as refusing:
        yield refusing


async def others_are_served(refusing: Refusing) -> None:
    """Refuses a mint and a relay at the same time."""
    user = await refusing.relays.user()
    answer = await refusing.relays.relay(user, "PerkNFT", refusing.relays.claim(user))
    answer.assert_relayed()
    event = await refusing.instance.post_event(f"{uuid4().hex}@shop.example")
    assert event.status == 200, event.body


async def test_a_refused_mint_is_minted_later_and_delays_no_other_mint(refusing: Refusing) -> None:
    await all_minted(refusing.instance)
    await refusing.note()
    refusing.refuse_next()
    refused = await refusing.instance.post_event(f"{uuid4().hex}@shop.example")
    assert (refused.status, refused.hash) == (202, None), (
        "no answer shows the hash of a refused transaction"
    )
    await refusing.abandoned()
    await others_are_served(refusing)
    assert (await refusing.instance.event(refused.event_id))["status"] == "queued"

    await refusing.finality()
    await all_minted(refusing.instance)
    assert await refusing.cancelled()
    await assert_books_agree(refusing.instance, [refused])


async def test_a_refused_relay_fails_once_its_self_transfer_is_final_and_delays_no_other_relay(
    refusing: Refusing,
) -> None:
    await all_minted(refusing.instance)
    await refusing.note()
    relays, user = refusing.relays, await refusing.relays.user()
    refusing.refuse_next()
    data = relays.claim(user)
    asking = asyncio.create_task(relays.relay(user, "PerkNFT", data, key="refused"))
    await refusing.abandoned()
    await others_are_served(refusing)
    assert not asking.done(), "until finality a reorg may restore the relay"

    await refusing.finality()
    answer = await asking
    details = answer.assert_refused(500, "TRANSACTION_FAILED")
    assert details["reason"] == "the network refused the transaction"
    again = await relays.relay(user, "PerkNFT", data, key="refused")
    assert again.assert_refused(500, "TRANSACTION_FAILED") == details
    shown = await relays.get(details["transactionHash"], user)
    assert (shown.status, shown.body["status"]) == (200, "failed")
    assert await relays.chain.claims(user.wallet, 1) == 0
    (await relays.relay(user, "PerkNFT", relays.claim(user))).assert_relayed()


async def test_a_kill_before_the_self_transfer_is_published_has_the_same_outcome(
    refusing: Refusing,
) -> None:
    """A mint on one chain, a relay on the other; `tests/operator` has kills at all other steps."""
    await all_minted(refusing.instance)
    await refusing.note()
    relays, user = refusing.relays, await refusing.relays.user()
    refusing.refuse_next()
    refusing.proxy.held = []
    refusing.proxy.hold = "request"
    asking = asyncio.create_task(
        refusing.instance.post_event(user.email)
        if refusing.kind == "anvil"
        else relays.relay(user, "PerkNFT", relays.claim(user), key="killed")
    )
    await until(lambda: _is_held(refusing))
    await refusing.instance.kill9()
    refusing.proxy.hold = ""
    await asyncio.gather(asking, return_exceptions=True)
    assert is_self_transfer(refusing.proxy.held[-1])
    await refusing.start_again()

    await others_are_served(refusing)
    await refusing.finality()
    await until(refusing.cancelled, 60.0)
    await all_minted(refusing.instance)
    await assert_books_agree(refusing.instance)
    await claims_once(relays, user)


async def _is_held(refusing: Refusing) -> bool:
    return bool(refusing.proxy.held)


async def claims_once(relays: Relays, user: User) -> None:
    assert await relays.chain.claims(user.wallet, 1) == 0
    (await relays.relay(user, "PerkNFT", relays.claim(user))).assert_relayed()
    assert await relays.chain.claims(user.wallet, 1) == 1
