"""Perk charges of a running instance, as brands' servers and the chain see them."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from aiohttp import ClientSession
from eth_account.signers.local import LocalAccount
from yarl import URL

from ltzd.rules.request_signatures import signature
from tests.support.instances.instance import Instance
from tests.support.instances.relayer import FREE, LTZ, PRICED, Answer, Relays, User, relays_of
from tests.support.relays.calls import call
from tests.support.waiting import until

REDEEM, STATUS, HOLDERS = "/redeem-perk", "/check-perk-status", "/list-perk-holders"
SERIAL_BITS = 32
_TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
_NAMES = ("X-LTZ-Brand-Id", "X-LTZ-Timestamp", "X-LTZ-Nonce", "X-LTZ-Signature")


@dataclass(frozen=True)
class Brand:
    """A brand's id and keys."""

    id: str
    key: str
    api_key: str = ""

    @classmethod
    def of(cls, dev_json: Mapping[str, Any]) -> "Brand":
        return cls(dev_json["brandId"], dev_json["securityKey"], dev_json["apiKey"])


@dataclass(frozen=True)
class Signed:
    """A signed request; sending it twice is a replay."""

    method: str
    target: str
    body: bytes
    headers: Mapping[str, str]


def signed(
    brand: Brand,
    method: str,
    target: str,
    body: bytes = b"",
    *,
    age_seconds: int = 0,
    nonce: str | None = None,
    key: str | None = None,
) -> Signed:
    """Signs a request with the brand's key, or with `key`."""
    timestamp, nonce = str(int(time.time()) - age_seconds), nonce or uuid4().hex
    made = signature(key or brand.key, timestamp, nonce, method, target.encode(), body)
    headers = dict(zip(_NAMES, (brand.id, timestamp, nonce, made), strict=True))
    return Signed(method, target, body, headers)


async def sent(http: ClientSession, base_url: str, request: Signed) -> Answer:
    headers = dict(request.headers)
    if request.body:
        headers["Content-Type"] = "application/json"
    url = URL(base_url + request.target, encoded=True)
    data = request.body or None
    async with http.request(request.method, url, data=data, headers=headers) as reply:
        return Answer(reply.status, json.loads(await reply.read()), reply.headers)


@dataclass
class Perks:
    relays: Relays
    brand: Brand
    other: Brand

    @property
    def instance(self) -> Instance:
        return self.relays.instance

    # Requests of a brand

    async def send(self, request: Signed) -> Answer:
        return await sent(self.instance.http, self.instance.base_url, request)

    def redemption(self, token: int, brand: Brand | None = None, **fields: object) -> Signed:
        """A signed redemption; `fields` replace or complete the defaults."""
        body = {"collectionId": token >> SERIAL_BITS, "tokenId": str(token)} | fields
        return signed(brand or self.brand, "POST", REDEEM, json.dumps(body).encode())

    async def redeem(self, token: int, brand: Brand | None = None, **fields: object) -> Answer:
        return await self.send(self.redemption(token, brand, **fields))

    def token_request(self, token: int, brand: Brand | None = None) -> Signed:
        target = f"{STATUS}?collectionId={token >> SERIAL_BITS}&tokenId={token}"
        return signed(brand or self.brand, "GET", target)

    async def status(self, token: int) -> dict[str, Any]:
        answer = await self.send(self.token_request(token))
        assert answer.status == 200, answer.body
        return dict(answer.body)

    async def shown(self, token: int, seconds: float = 30.0, **wanted: object) -> dict[str, Any]:
        """Returns the token's status once it has these values."""

        async def answered() -> dict[str, Any] | None:
            answer = await self.status(token)
            return answer if wanted.items() <= answer.items() else None

        answer = await until(answered, seconds)
        assert answer is not None
        return answer

    # Tokens and the chain

    async def token(self, user: User, collection: int = FREE, **fields: Any) -> int:
        """Claims a token; returns it once it is indexed."""
        data = self.relays.claim(user, collection, self.relays.price)
        answer = await self.relays.relay(user, "PerkNFT", data, **fields)
        answer.assert_relayed()
        token = await self.claimed_in(answer.hash)
        await self.indexed(token)
        return token

    async def priced_token(self) -> int:
        """Claims a token of the second collection, which has ten charges."""
        user = await self.relays.welcomed()
        assert self.relays.price <= 100 * LTZ
        permit = await self.relays.permit(user, "PerkNFT", self.relays.price)
        return await self.token(user, PRICED, metadata={"permit": permit.json})

    async def indexed(self, token: int) -> None:
        await until(
            lambda: self.instance.ask("SELECT count(*) FROM tokens WHERE token_id = $1", token)
        )

    async def claimed_in(self, transaction_hash: str) -> int:
        receipt = await self.instance.rpc.receipt(transaction_hash)
        perk_nft = self.relays.chain.contracts["PerkNFT"]
        (token,) = [
            int(log["topics"][3], 16)
            for log in receipt["logs"]
            if log["address"].lower() == perk_nft and log["topics"][0] == _TRANSFER
        ]
        return token

    async def charges(self, token: int) -> int:
        """The remaining charges on the chain."""
        remaining, _ = await self.relays.chain.view("PerkNFT", "chargesOf", token)
        return int(remaining)

    def moving(self, owner: LocalAccount, to: str, token: int) -> bytes:
        return call("PerkNFT", "transferFrom", owner.address, to, token)

    async def give(self, owner: LocalAccount, to: str, token: int) -> None:
        """Transfers the token by its holder's own transaction, without ltzd."""
        await self.relays.chain.send(owner, "PerkNFT", self.moving(owner, to, token))

    async def head_is_indexed(self) -> None:
        """Waits until the index has the current head as canonical."""
        head = bytes.fromhex((await self.instance.rpc.block())["hash"][2:])
        await until(lambda: self.instance.ask("SELECT count(*) FROM blocks WHERE hash = $1", head))


def assert_refused(answer: Answer, status: int, code: str) -> Any:
    """Checks an error; returns its details, if any."""
    assert (answer.status, answer.body.get("code")) == (status, code), answer.body
    assert answer.body.keys() <= {"error", "code", "details"}
    return answer.body.get("details")


@asynccontextmanager
async def perks_of(instance: Instance) -> AsyncIterator[Perks]:
    dev_json = instance.dev_json
    async with relays_of(instance) as relays:
        yield Perks(relays, Brand.of(dev_json["brand"]), Brand.of(dev_json["otherBrand"]))
