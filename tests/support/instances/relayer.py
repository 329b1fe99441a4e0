"""The relay surface of a running instance, used through dev.json and HTTP.

All requests of the tests come from one address with a limit of 100 a minute. The rate-limit windows
in Redis are deleted before they are full.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from eth_account import Account
from eth_account.signers.local import LocalAccount
from redis.asyncio import Redis

from tests.support.commands import ltzd
from tests.support.instances.chain import HOUR, Chain
from tests.support.instances.instance import Instance
from tests.support.instances.load import post_all
from tests.support.relays.calls import call
from tests.support.relays.signing import Permit, a_word, permit

LTZ = 10**18
A_WELCOME = 100 * LTZ
HOURLY = 35
FREE, PRICED, ITEM = 1, 2, 1
_FLUSH_AFTER = 50
_LIMITS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_RELAYED = {
    "success": bool,
    "transactionHash": str,
    "gasUsed": str,
    "effectiveGasPrice": str,
    "blockNumber": int,
    "from": str,
    "to": str,
    "status": str,
    "explorerUrl": str,
}


@dataclass(frozen=True)
class User:
    email: str
    access_token: str
    identity_token: str
    account: LocalAccount

    @property
    def wallet(self) -> str:
        return str(self.account.address)


@dataclass(frozen=True)
class Answer:
    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]

    @property
    def hash(self) -> str:
        return str(self.body["transactionHash"])

    @property
    def limits(self) -> tuple[int, int, int]:
        """Limit, remaining, reset in Unix seconds."""
        limit, remaining, reset = (int(self.headers[name]) for name in _LIMITS)
        return limit, remaining, reset

    def assert_relayed(self, status: str = "confirmed") -> None:
        """Checks a success of spec 2.7, with all of its keys and no other."""
        assert self.status == 200, self.body
        assert {key: type(value) for key, value in self.body.items()} == _RELAYED
        assert (self.body["success"], self.body["status"]) == (True, status)
        assert len(bytes.fromhex(self.hash.removeprefix("0x"))) == 32
        assert int(self.body["gasUsed"]) > 21_000
        assert int(self.body["effectiveGasPrice"]) > 0
        assert self.body["explorerUrl"].endswith(self.hash)
        assert self.limits[0] == HOURLY

    def assert_refused(self, status: int, code: str) -> Any:
        """Checks an error of spec 7.2; returns its details, if any."""
        assert (self.status, self.body.get("code")) == (status, code), self.body
        assert self.body.keys() <= {"error", "code", "details"}
        assert isinstance(self.body["error"], str)
        assert self.body["error"]
        assert self.limits[0] in {HOURLY, 100}
        return self.body.get("details")

    def assert_reverted(self, reason: str) -> None:
        details = self.assert_refused(500, "TRANSACTION_FAILED")
        assert reason in details["reason"]


class Relays:
    def __init__(self, instance: Instance, redis: Any) -> None:
        self.instance = instance
        self.chain = Chain(instance)
        self.flush_after: int | None = _FLUSH_AFTER
        self._redis = redis
        self._requests_sent = 0

    # Users

    async def user(self) -> User:
        """A new user without tokens."""
        return await self._login(f"{uuid4().hex}@shop.example")

    async def user_of_account(self, provider: str, id_: str, **order: object) -> User:
        """A user who logs in with an account at an OAuth provider."""
        request = {"provider": provider, "id": id_, **order}
        return self._logged_in("", await self._control("identityTokenUrl", request))

    async def users(self, count: int) -> list[User]:
        return [await self.user() for _ in range(count)]

    async def welcomed(self) -> User:
        """A new user with the 100 LTZ of the demo brand's welcome."""
        return (await self.all_welcomed(1))[0]

    async def all_welcomed(self, count: int) -> list[User]:
        users = await self.users(count)
        answers = await post_all(self.instance, [user.email for user in users])
        for answer in answers:
            assert answer.status == 200, answer.body
            await self.instance.minted(answer.event_id)
        return users

    async def tokens(self, user: User, **claims: object) -> dict[str, Any]:
        """New tokens with these claims; `expiresIn` sets the lifetime."""
        request: dict[str, object] = {"email": user.email}
        if "expiresIn" in claims:
            request["expiresIn"] = claims.pop("expiresIn")
        return await self._control("identityTokenUrl", request | {"claims": claims})

    async def _login(self, email: str) -> User:
        return self._logged_in(email, await self._control("identityTokenUrl", {"email": email}))

    def _logged_in(self, email: str, given: dict[str, Any]) -> User:
        account = Account.from_key(given["privateKey"])
        assert account.address == given["walletAddress"]
        return User(email, given["accessToken"], given["identityToken"], account)

    async def _control(self, name: str, body: object) -> dict[str, Any]:
        url = self.instance.dev_json["sandbox"][name]
        async with self.instance.http.post(url, json=body) as reply:
            assert reply.status == 200, await reply.text()
            answer: dict[str, Any] = await reply.json()
            return answer

    # The surface

    async def relay(
        self, user: User, to: str, data: bytes, *, key: str | None = None, **fields: object
    ) -> Answer:
        """Relays a call; `to` is a contract's name or an address, `fields` extend the body."""
        headers = {"Idempotency-Key": key} if key is not None else {}
        return await self.post(self.body(user, to, data, **fields), user.access_token, **headers)

    def body(self, user: User, to: str, data: bytes, **fields: object) -> dict[str, object]:
        return {
            "to": self.chain.contracts.get(to, to),
            "data": "0x" + data.hex(),
            "userAddress": user.wallet,
        } | fields

    async def post(self, body: object, token: str | None, **headers: str) -> Answer:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return await self.ask("POST", "/relay", headers, body)

    async def get(self, transaction_hash: str, user: User | None) -> Answer:
        headers = {"Authorization": f"Bearer {user.access_token}"} if user else {}
        return await self.ask("GET", f"/relay/{transaction_hash}", headers)

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: object = None
    ) -> Answer:
        self._requests_sent += 1
        if self.flush_after and self._requests_sent % self.flush_after == 0:
            await self.forget_addresses()
        url = self.instance.base_url + path
        async with self.instance.http.request(method, url, headers=headers, json=body) as reply:
            text = await reply.text()
            return Answer(reply.status, json.loads(text) if text else {}, reply.headers)

    async def forget_addresses(self) -> None:
        await self._redis.flushdb()

    # Offers and payments

    async def permit(self, user: User, spender: str, value: int, seconds: int = HOUR) -> Permit:
        """`spender` is a contract's name or an address."""
        to = self.chain.contracts.get(spender, spender)
        return await permit(self.chain, user.account, to, value, seconds)

    def claim(self, user: User, collection: int = FREE, most: int = 0, claims: int = 0) -> bytes:
        return call("PerkNFT", "claimFor", user.wallet, collection, most, claims, a_word())

    def buy(self, user: User, quantity: int, most: int, ref: bytes | None = None) -> bytes:
        arguments = (user.wallet, ITEM, quantity, most, ref or a_word())
        return call("PointsSale", "buyFor", *arguments)

    def lock(self, user: User, business: str, amount: int, until_second: int, deal: bytes) -> bytes:
        arguments = (user.wallet, business, amount, until_second, deal)
        return call("BusinessEscrow", "lockFor", *arguments)

    @property
    def price(self) -> int:
        """The price of the priced collection."""
        return int(self.instance.dev_json["collections"][PRICED - 1]["price"]) * LTZ

    @property
    def brand(self) -> str:
        """The brand, which is paid for perks and items."""
        return str(self.instance.dev_json["brand"]["brandId"])

    async def collection(self, *options: str) -> int:
        """Creates a collection of the demo brand; by default free, once for each user."""
        await self._as_registrar(
            "collection", "create", "--brand", self.brand, "--charges", "1", *options
        )
        return int(await self.chain.view("PerkNFT", "collectionCount"))

    async def approve_business(self, wallet: str) -> None:
        await self._as_registrar("business", "create", wallet)

    async def _as_registrar(self, *arguments: str) -> None:
        key = self.instance.data_dir / "keys" / "admin"
        where = ("--key", key, "--data-dir", self.instance.data_dir)
        done = await ltzd(*arguments, *where)
        assert done.code == 0, done.err


@asynccontextmanager
async def relays_of(instance: Instance) -> AsyncIterator[Relays]:
    async with Redis.from_url(instance.dev_json["redisUrl"]) as redis:
        relays = Relays(instance, redis)
        await relays.forget_addresses()
        yield relays
