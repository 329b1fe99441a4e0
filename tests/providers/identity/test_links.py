"""A user's wallets: how long an answer is used, and what is known while the provider is away."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ltzd.concurrency import work_slots
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.client import IdentityClient, IdentityUser, UserProfile
from ltzd.values import Address, address_of
from tests.support.clocks import ManualClock
from tests.support.services.identity import Provider, a_provider, served
from tests.support.waiting import Stopwatch


class Slot(asyncio.Event):
    def release(self) -> None:
        self.set()


QUICK: dict[str, Any] = {"max_attempts": 1, "timeout_seconds": 0.3}
DID = "did:privy:cann"
WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
OTHER_WALLET = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"
NEW_WALLET = Address(b"\x11" * 20)


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    async with a_provider(tmp_path) as provider:
        yield provider


@pytest.fixture
def ticks() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def client(provider: Provider, ticks: ManualClock) -> AsyncIterator[IdentityClient]:
    async with IdentityClient(replace(provider.policy, **QUICK), ticks) as client:
        yield client


async def test_a_users_wallets_are_asked_for_once_a_minute(
    provider: Provider, client: IdentityClient, ticks: ManualClock
) -> None:
    given = await provider.log_in()
    wallet = address_of(given["walletAddress"])
    provider.count_requests()
    for seconds in (0, 30, 29.9):
        ticks.now += seconds
        assert await client.wallets_of(given["subject"]) == (wallet,)
        assert await client.wallets_of(given["subject"], wanted=wallet) == (wallet,)
    assert provider.requests == 1

    await provider.add_wallet(given["subject"])
    ticks.now += 0.1
    requests_before = provider.requests

    assert len(await client.wallets_of(given["subject"], wanted=wallet)) == 2
    assert provider.requests == requests_before + 1


async def test_a_wallet_that_is_not_known_yet_is_looked_for_once_in_three_seconds(
    provider: Provider, client: IdentityClient, ticks: ManualClock
) -> None:
    subject = (await provider.log_in())["subject"]
    provider.count_requests()
    for _ in range(10):
        assert NEW_WALLET not in await client.wallets_of(subject, wanted=NEW_WALLET)
    assert provider.requests == 1

    await provider.add_wallet(subject)
    ticks.now += 3

    requests_before = provider.requests
    for _ in range(10):
        assert len(await client.wallets_of(subject, wanted=NEW_WALLET)) == 2
    assert provider.requests == requests_before + 1


async def test_a_hundred_callers_for_one_user_share_one_request(
    provider: Provider, client: IdentityClient
) -> None:
    subject = (await provider.log_in())["subject"]
    provider.count_requests()
    callers = [asyncio.create_task(client.wallets_of(subject)) for _ in range(100)]
    await asyncio.sleep(0)
    assert client.under_way == 0, "only users without a wallet yet are counted"

    assert len(set(await asyncio.gather(*callers))) == 1
    assert provider.requests == 1


async def test_a_user_whom_the_provider_does_not_know_has_no_wallets(
    provider: Provider, client: IdentityClient
) -> None:
    provider.count_requests()
    for _ in range(3):
        assert await client.wallets_of("did:privy:cnobody") == ()
    assert provider.requests == 1


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "ann",
        "did:privy:",
        "did:privy:../x",
        "did:privy:a?x=1",
        "did:privy:a\n",
        DID + "a" * 128,
    ],
)
async def test_what_is_no_subject_has_no_wallets_and_reaches_no_url(
    provider: Provider, client: IdentityClient, subject: str
) -> None:
    provider.count_requests()

    assert await client.wallets_of(subject) == ()
    assert provider.requests == 0


async def test_known_wallets_count_for_an_hour_while_the_provider_is_away(
    provider: Provider, client: IdentityClient, ticks: ManualClock
) -> None:
    given = await provider.log_in()
    subject, wallet = given["subject"], address_of(given["walletAddress"])
    await client.wallets_of(subject)
    provider.break_down(drops_request=True)

    for _ in range(5):
        ticks.now += 719
        assert await client.wallets_of(subject, wanted=wallet) == (wallet,)
    ticks.now += 6
    with pytest.raises(IdentityUnavailable):
        await client.wallets_of(subject, wanted=wallet)


async def test_a_failure_is_followed_by_a_pause_for_whom_the_known_wallets_will_do(
    provider: Provider, client: IdentityClient, ticks: ManualClock
) -> None:
    subject = (await provider.log_in())["subject"]
    await client.wallets_of(subject)
    provider.break_down()
    ticks.now += 60
    for _ in range(5):
        ticks.now += 2.9
        assert await client.wallets_of(subject)
    assert provider.requests == 1

    provider.count_requests()
    await provider.add_wallet(subject)
    ticks.now += 4

    assert len(await client.wallets_of(subject)) == 2


async def test_nobody_can_tell_whether_an_unknown_wallet_is_a_users_while_the_provider_is_away(
    provider: Provider, client: IdentityClient, ticks: ManualClock
) -> None:
    subject = (await provider.log_in())["subject"]
    provider.break_down()
    with pytest.raises(IdentityUnavailable):
        await client.wallets_of(subject)
    provider.count_requests()
    await client.wallets_of(subject)
    provider.break_down()
    ticks.now += 3

    for _ in range(5):
        with pytest.raises(IdentityUnavailable):
            await client.wallets_of(subject, wanted=NEW_WALLET)
    assert provider.requests == 1
    assert await client.wallets_of(subject)


async def test_a_slow_provider_is_given_up_in_time(
    provider: Provider, client: IdentityClient
) -> None:
    subject = (await provider.log_in())["subject"]
    provider.break_down(delay_seconds=30)
    watch, slot = Stopwatch(), Slot()
    work_slots.hold(slot)

    with pytest.raises(IdentityUnavailable):
        await client.wallets_of(subject)

    assert watch.seconds() < 1.0
    assert slot.is_set(), "a relay that waits keeps no slot from others"


async def test_who_waits_for_wallets_hears_that_we_close(
    provider: Provider, client: IdentityClient
) -> None:
    provider.break_down(delay_seconds=30)
    caller = asyncio.create_task(client.wallets_of(DID))
    await asyncio.sleep(0)

    await client.close()

    with pytest.raises(IdentityUnavailable):
        await caller


async def test_only_so_many_users_are_remembered(provider: Provider) -> None:
    async with IdentityClient(replace(provider.policy, max_cached_users=2)) as client:
        provider.count_requests()
        for name in ("a", "b", "c", "c", "a"):
            await client.wallets_of(f"did:privy:{name}")

    assert provider.requests == 4


def a_row(address: object, **other: object) -> dict[str, object]:
    return {"type": "wallet", "chain_type": "ethereum", "address": address, **other}


@pytest.mark.parametrize(
    ("body", "wallets"),
    [
        ({"id": DID, "linked_accounts": []}, []),
        ({"id": DID, "linked_accounts": [a_row(WALLET), 7, a_row("0x12")]}, [WALLET]),
        (
            {
                "id": DID,
                "linked_accounts": [
                    a_row(WALLET, latest_verified_at=None, wallet_client_type="privy"),
                    a_row(OTHER_WALLET, latest_verified_at=None, wallet_client_type="rainbow"),
                ],
            },
            [WALLET],
        ),
        (
            {
                "id": DID,
                "linked_accounts": [a_row(f"0x{number:040x}") for number in range(1, 300)],
            },
            [f"0x{number:040x}" for number in range(1, 257)],
        ),
        ({"id": "did:privy:cbob", "linked_accounts": []}, None),
        ({"id": DID, "linked_accounts": {}}, None),
        ({"id": DID}, None),
        ([], None),
        (None, None),
    ],
    ids=range(9),
)
async def test_an_answer_is_about_the_user_we_asked_for_or_makes_no_sense(
    provider: Provider, body: object, wallets: list[str] | None
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(body)

    async with served(answer, provider.policy) as policy, IdentityClient(policy) as client:
        if wallets is None:
            with pytest.raises(IdentityUnavailable):
                await client.wallets_of(DID)
        else:
            assert list(await client.wallets_of(DID)) == [address_of(text) for text in wallets]


def embedded(address: str, index: int) -> dict[str, object]:
    kind = {"wallet_client_type": "privy", "connector_type": "embedded", "wallet_index": index}
    return a_row(address, **kind)


def an_email(address: object, **details: object) -> dict[str, object]:
    return {"type": "email", "address": address, "latest_verified_at": 1} | details


@pytest.mark.parametrize(
    ("rows", "home", "emails"),
    [
        ([embedded(OTHER_WALLET, 1), embedded(WALLET, 0), a_row(OTHER_WALLET)], WALLET, ()),
        ([embedded(WALLET, 0), an_email("Ann@X.example")], WALLET, ("ann@x.example",)),
        ([embedded(WALLET, 0), an_email("a@x.example", latest_verified_at=None)], WALLET, ()),
        ([embedded(WALLET, 0), {"type": "email", "address": "a@x.example"}], WALLET, ()),
        ([embedded(WALLET, 0), an_email("\N{KELVIN SIGN}@x.example"), an_email(7)], WALLET, ()),
        ([a_row(WALLET), an_email("a@x.example")], None, None),
        ([embedded(WALLET.replace("aAeb", "AAeb"), 0)], None, None),
    ],
    ids=range(7),
)
async def test_a_person_is_his_first_embedded_wallet_and_the_addresses_that_he_has_proven(
    provider: Provider, rows: list[object], home: str | None, emails: tuple[str, ...] | None
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"id": DID, "linked_accounts": rows})

    async with served(answer, provider.policy) as policy, IdentityClient(policy) as client:
        person = await client.profile_of(DID)
        nobody = await client.profile_of("no subject")

    assert nobody is None
    if home is None or emails is None:
        assert person is None
    else:
        assert person == UserProfile(DID, IdentityUser(DID, address_of(home)), emails)


@pytest.mark.parametrize("status", [302, 400, 401, 403, 422])
async def test_a_refusal_is_not_taken_for_a_user_without_wallets(
    provider: Provider, status: int
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"error": "no", "code": "invalid_data"}, status=status)

    async with served(answer, provider.policy) as policy, IdentityClient(policy) as client:
        with pytest.raises(IdentityUnavailable):
            await client.wallets_of(DID)
