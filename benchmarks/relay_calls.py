"""The users and signed calls of the relay benchmarks, as prepared requests.

A transfer by authorization is not serialized per user and may be repeated with another nonce. Each
user can claim of the demo's free collection once. No user sends more requests than an hour of
relays allows.
"""

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import coincurve
from msgspec.structs import astuple

from benchmarks.harness import load
from benchmarks.harness.instance import Instance
from ltzd.chain.contracts import contract_abi, perk_nft
from ltzd.chain.typed_data import (
    DOMAIN_NAMES,
    TransferWithAuthorization,
    digest,
    domain_separator,
)
from ltzd.rules.relayer.limits import RELAYS_AN_HOUR
from ltzd.values import Address, address_of, bytes_of, checksummed, hex_of

CONFIRMED = '"status":"confirmed"'
FREE_COLLECTION = 1
TRANSFERS_OF_USER = RELAYS_AN_HOUR - 1
"""The remaining relay of the hour is a claim."""
_LIFETIME_SECONDS = 6 * 3600
_SHOP = Address(b"\x5b" * 20)
_AT_ONCE = 32

Each = TypeVar("Each")


@dataclass(frozen=True, slots=True)
class User:
    token: str
    wallet: Address
    key: bytes


class Calls:
    """Calls of LTZ and PerkNFT that the users sign, and the requests that contain them."""

    def __init__(self, ltzd: Instance, users: Sequence[User]) -> None:
        contracts = ltzd.dev_json["contracts"]
        self._port = ltzd.port
        self._users = users
        self._keys = [coincurve.PrivateKey(user.key) for user in users]
        self.ltz = address_of(contracts["LTZ"].lower())
        self._perk_nft = address_of(contracts["PerkNFT"].lower())
        self._separator = domain_separator(
            DOMAIN_NAMES["LTZ"], int(ltzd.dev_json["chainId"]), self.ltz
        )
        self._valid_before = int(time.time()) + _LIFETIME_SECONDS
        self._numbers = iter(range(len(users) * TRANSFERS_OF_USER))
        self._claimers = iter(users)

    def transfer(self, number: int) -> bytes:
        """A signed transfer of one LTZ unit; numbers cycle through the users."""
        at = number % len(self._users)
        wallet = self._users[at].wallet
        transfer = TransferWithAuthorization(
            wallet, _SHOP, 1, 0, self._valid_before, secrets.token_bytes(32)
        )
        signed = self._keys[at].sign_recoverable(digest(transfer, self._separator), hasher=None)
        signature = signed[:64] + bytes((signed[64] + 27,))
        return contract_abi.encode_call(
            "LTZ",
            "transferWithAuthorization",
            *astuple(transfer),
            signature[64],
            signature[:32],
            signature[32:64],
        )

    def transfers(self, count: int) -> list[bytes]:
        """Calls for a side that sends them without `/relay`."""
        return [self.transfer(number) for number in range(count)]

    def transfer_requests(self, count: int) -> list[str]:
        """Requests for this many relays of the users' hour."""
        return [self._transfer_request(number) for number in _taken(self._numbers, count)]

    def claim_requests(self, count: int) -> list[str]:
        """Requests for the next users' claims."""
        requests = []
        for user in _taken(self._claimers, count):
            data = perk_nft.claim_for_call(
                user.wallet, FREE_COLLECTION, 0, 0, secrets.token_bytes(32)
            )
            requests.append(self._request(user, self._perk_nft, data))
        return requests

    def _transfer_request(self, number: int) -> str:
        return self._request(
            self._users[number % len(self._users)], self.ltz, self.transfer(number)
        )

    def _request(self, user: User, to: Address, data: bytes) -> str:
        body = {
            "to": checksummed(to),
            "data": hex_of(data),
            "userAddress": checksummed(user.wallet),
        }
        authorization = f"Authorization: Bearer {user.token}"
        return load.post(self._port, "/relay", json.dumps(body), authorization)


def _taken(source: Iterator[Each], count: int) -> list[Each]:
    taken = list(itertools.islice(source, count))
    if len(taken) < count:
        raise SystemExit("the users' hour of relays is used up: fewer rounds, or fewer seconds")
    return taken


async def logged_in(ltzd: Instance, count: int) -> list[User]:
    """Logs in users of the benchmarks' brand, with the same addresses as their events."""
    connector = aiohttp.TCPConnector(limit=_AT_ONCE)
    async with aiohttp.ClientSession(connector=connector) as session:
        return await asyncio.gather(*(_log_in(session, ltzd, number) for number in range(count)))


async def _log_in(session: aiohttp.ClientSession, ltzd: Instance, number: int) -> User:
    body = {
        "email": f"user{number}@{ltzd.brand.domains[0]}",
        "expiresIn": _LIFETIME_SECONDS,
    }
    async with session.post(ltzd.dev_json["sandbox"]["identityTokenUrl"], json=body) as answer:
        given: dict[str, Any] = await answer.json()
    return User(
        given["identityToken"],
        address_of(given["walletAddress"].lower()),
        bytes_of(given["privateKey"]),
    )
