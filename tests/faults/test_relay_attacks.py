"""Calls that must not be relayed, tried on a running instance: refused, and nothing published.

The victim has LTZ, a perk, a deal, and allowances to every contract and every operator, all of his
own doing and past `/relay`. The attacker is a user like any other.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.instances.chain import CONTRACTS, HOUR
from tests.support.instances.relayer import FREE, HOURLY, ITEM, LTZ, Answer, Relays, User, relays_of
from tests.support.instances.shared import Instances
from tests.support.relays.calls import call, role, several, with_word, word_in
from tests.support.relays.signing import (
    Permit,
    a_word,
    buy_with_sig,
    claim_with_sig,
    settle_with_sig,
    transfer,
)

SHARE = 10 * LTZ
EVERYTHING = 2**256 - 1
CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
THIEF = "0x" + "77" * 20
JUNK = b"\xff" * 32


@dataclass(frozen=True)
class World:
    relays: Relays
    attacker: User
    victim: User
    deal: bytes
    token: int
    permits: dict[str, Permit]
    """The attacker's permits, by contract; the permit on LTZ names the operator."""

    @property
    def attacker_address(self) -> str:
        return self.attacker.wallet

    @property
    def victim_address(self) -> str:
        return self.victim.wallet

    @property
    def operator(self) -> str:
        return self.relays.chain.operators[0]

    async def try_call(self, to: str, data: bytes, **fields: Any) -> Answer:
        return await self.relays.relay(self.attacker, to, data, **fields)

    def allowed(self, contract: str) -> bytes:
        """An allowed call of the attacker, after a permit."""
        return {
            "LTZ": call("LTZ", "transferFrom", self.attacker_address, THIEF, SHARE),
            "PerkNFT": self.relays.claim(self.attacker),
            "PointsSale": self.relays.buy(self.attacker, 1, SHARE),
            "BusinessEscrow": self.relays.lock(self.attacker, THIEF, SHARE, 2**31, a_word()),
        }[contract]

    def permit_call(self, contract: str) -> bytes:
        permit = self.permits[contract]
        return permit.call if contract == "LTZ" else permit.call_on(contract)


@pytest_asyncio.fixture(scope="module")
async def world(instances: Instances) -> AsyncIterator[World]:
    async with relays_of(await instances.of("anvil")) as relays:
        attacker, victim = await relays.user(), await relays.welcomed()
        deal = await _possessions(relays, victim)
        minted = (await relays.chain.view("PerkNFT", "collection", FREE))[1]
        spenders = {name: name for name in CONTRACTS} | {"LTZ": relays.chain.operators[0]}
        permits = {
            name: await relays.permit(attacker, spender, SHARE)
            for name, spender in spenders.items()
        }
        attacked = World(relays, attacker, victim, deal, FREE << 32 | minted, permits)
        before = await _state(attacked)
        yield attacked
        assert await _state(attacked) == before


async def _possessions(relays: Relays, victim: User) -> bytes:
    chain, deal = relays.chain, a_word()
    spenders = [chain.contracts[name] for name in CONTRACTS[1:]] + chain.operators
    for spender in spenders:
        await chain.send(victim.account, "LTZ", call("LTZ", "approve", spender, EVERYTHING))
    await chain.send(victim.account, "PerkNFT", call("PerkNFT", "claim", FREE, 0, a_word()))
    business, later = relays.instance.dev_json["businesses"][0], await chain.now() + 2 * HOUR
    lock = call("BusinessEscrow", "lock", business, SHARE, later, deal)
    await chain.send(victim.account, "BusinessEscrow", lock)
    return deal


async def _state(world: World) -> tuple[Any, ...]:
    chain = world.relays.chain
    return (
        await chain.balance(world.victim_address),
        await chain.balance(world.attacker_address),
        await chain.balance(THIEF),
        await chain.view("PerkNFT", "ownerOf", world.token),
        await chain.view("PerkNFT", "chargesOf", world.token),
        await chain.view("BusinessEscrow", "deal", world.deal),
        await chain.claims(world.victim_address, FREE),
    )


def refused(answer: Answer) -> None:
    answer.assert_refused(403, "VALIDATION_FAILED")


# Functions and principals

FORBIDDEN: dict[str, tuple[str, Callable[[World], bytes]]] = {
    "mint LTZ": ("LTZ", lambda w: call("LTZ", "mintReward", w.attacker_address, LTZ, a_word())),
    "mint much LTZ": (
        "LTZ",
        lambda w: call("LTZ", "mintRewardBatch", [(w.attacker_address, LTZ, a_word())]),
    ),
    "become minter": (
        "LTZ",
        lambda w: call("LTZ", "grantRole", role("MINTER"), w.attacker_address),
    ),
    "be given the operator's LTZ": (
        "LTZ",
        lambda w: call("LTZ", "approve", w.attacker_address, EVERYTHING),
    ),
    "take the operator's LTZ": ("LTZ", lambda w: call("LTZ", "transfer", w.attacker_address, 1)),
    "take a victim's LTZ": (
        "LTZ",
        lambda w: call("LTZ", "transferFrom", w.victim_address, w.attacker_address, SHARE),
    ),
    "burn the operator's LTZ": ("LTZ", lambda _: call("LTZ", "burn", 1)),
    "burn a victim's LTZ": ("LTZ", lambda w: call("LTZ", "burnFrom", w.victim_address, SHARE)),
    "lift the mint limit": (
        "LTZ",
        lambda w: call("LTZ", "setMintLimit", w.attacker_address, 2**90, 1),
    ),
    "become admin": ("LTZ", lambda w: call("LTZ", "beginDefaultAdminTransfer", w.attacker_address)),
    "claim for a victim": (
        "PerkNFT",
        lambda w: call("PerkNFT", "claimFor", w.victim_address, FREE, 0, 1, a_word()),
    ),
    "claim as the operator": ("PerkNFT", lambda _: call("PerkNFT", "claim", FREE, 0, a_word())),
    "redeem a victim's charge": (
        "PerkNFT",
        lambda w: call("PerkNFT", "redeemCharge", w.token, w.victim_address, 1, 3, a_word()),
    ),
    "redirect the price": (
        "PerkNFT",
        lambda w: call("PerkNFT", "setPayout", FREE, w.attacker_address),
    ),
    "take a collection": (
        "PerkNFT",
        lambda w: call("PerkNFT", "setBrand", FREE, w.attacker_address),
    ),
    "become relayer": (
        "PerkNFT",
        lambda w: call("PerkNFT", "grantRole", role("RELAYER"), w.attacker_address),
    ),
    "dismiss the operator": (
        "PerkNFT",
        lambda w: call("PerkNFT", "renounceRole", role("RELAYER"), w.operator),
    ),
    "take a victim's perk": (
        "PerkNFT",
        lambda w: call("PerkNFT", "transferFrom", w.victim_address, w.attacker_address, w.token),
    ),
    "be given the operator's perks": (
        "PerkNFT",
        lambda w: call("PerkNFT", "setApprovalForAll", w.attacker_address, True),
    ),
    "change a collection": (
        "PerkNFT",
        lambda _: call("PerkNFT", "updateCollection", FREE, 0, 0, 0, True),
    ),
    "buy for a victim": (
        "PointsSale",
        lambda w: call("PointsSale", "buyFor", w.victim_address, ITEM, 1, EVERYTHING, a_word()),
    ),
    "change an item": (
        "PointsSale",
        lambda w: call(
            "PointsSale",
            "setItem",
            ITEM,
            w.attacker_address,
            (w.attacker_address, 1, 9, 0, 9, True, False),
            bytes(32),
        ),
    ),
    "lock a victim's LTZ": (
        "BusinessEscrow",
        lambda w: call(
            "BusinessEscrow",
            "lockFor",
            w.victim_address,
            w.attacker_address,
            SHARE,
            2**31,
            a_word(),
        ),
    ),
    "lock the operator's LTZ": (
        "BusinessEscrow",
        lambda w: call("BusinessEscrow", "lock", w.attacker_address, 1, 2**31, a_word()),
    ),
    "release a victim's deal": ("BusinessEscrow", lambda w: _deal(w, "release")),
    "refund a victim's deal": ("BusinessEscrow", lambda w: _deal(w, "refund")),
    "reclaim a victim's deal": ("BusinessEscrow", lambda w: _deal(w, "reclaim")),
    "split a victim's deal": (
        "BusinessEscrow",
        lambda w: call("BusinessEscrow", "split", w.deal, SHARE),
    ),
    "approve a business": (
        "BusinessEscrow",
        lambda w: call("BusinessEscrow", "setBusiness", w.attacker_address, True),
    ),
}


def _deal(world: World, function: str) -> bytes:
    return call("BusinessEscrow", function, world.deal)


def disguises(world: World, contract: str, data: bytes) -> dict[str, bytes]:
    """The call alone and hidden in multicalls."""
    permit, allowed = world.permit_call(contract), world.allowed(contract)
    return {
        "alone": data,
        "in a multicall": several(contract, data),
        "after a permit": several(contract, permit, data),
        "before a permit": several(contract, data, permit),
        "after an allowed call": several(contract, permit, allowed, data),
        "instead of a permit": several(contract, data, allowed),
        "nested": several(contract, several(contract, data)),
        "nested after a permit": several(contract, permit, several(contract, data)),
    }


@pytest.mark.parametrize("attack", FORBIDDEN)
async def test_no_call_uses_the_operators_own_rights(world: World, attack: str) -> None:
    contract, build = FORBIDDEN[attack]
    async with world.relays.chain.nothing_published():
        for data in disguises(world, contract, build(world)).values():
            refused(await world.try_call(contract, data))
            metadata = {"permit": world.permits[contract].json}
            refused(await world.try_call(contract, data, metadata=metadata))


async def test_a_multicall_holds_one_call_after_at_most_one_permit(world: World) -> None:
    async with world.relays.chain.nothing_published():
        for contract in CONTRACTS:
            permit, allowed = world.permit_call(contract), world.allowed(contract)
            for calls in (
                [],
                [permit, permit],
                [permit, permit, allowed],
                [allowed, allowed],
                [permit, allowed, allowed],
                [allowed, permit],
                [several(contract, permit, allowed)],
                [permit, several(contract, allowed)],
                [b""],
                [allowed, b""],
                [b"\x00" * 4],
            ):
                refused(await world.try_call(contract, several(contract, *calls)))


async def test_a_call_of_one_contract_is_not_relayed_to_another(world: World) -> None:
    async with world.relays.chain.nothing_published():
        refused(await world.try_call("PointsSale", world.allowed("PerkNFT")))
        refused(await world.try_call("LTZ", world.permit_call("PerkNFT")))
        refused(await world.try_call("PerkNFT", world.permit_call("LTZ")))


async def test_a_contract_off_the_list_is_refused_with_the_list(world: World) -> None:
    dev_json = world.relays.instance.dev_json
    allowed = sorted(address.lower() for address in dev_json["contracts"].values())
    others = [
        world.attacker_address,
        world.victim_address,
        world.operator,
        dev_json["minter"],
        "0x" + "00" * 20,
        THIEF,
    ]
    async with world.relays.chain.nothing_published():
        for other in others:
            answer = await world.try_call(other, world.allowed("PerkNFT"))
            details = answer.assert_refused(403, "CONTRACT_NOT_WHITELISTED")
            assert details.keys() == {"contract", "allowed"}
            assert details["contract"].lower() == other.lower()
            assert sorted(address.lower() for address in details["allowed"]) == allowed


@pytest.mark.parametrize("token", ["access_token", "identity_token"])
async def test_a_call_for_another_users_address_is_refused(world: World, token: str) -> None:
    mine, theirs = world.allowed("PerkNFT"), world.relays.claim(world.victim, claims=1)
    permit = await world.relays.permit(world.victim, "PerkNFT", SHARE)
    async with world.relays.chain.nothing_published():
        for data in (mine, theirs, permit.call_on("PerkNFT")):
            body = world.relays.body(
                world.attacker, "PerkNFT", data, userAddress=world.victim_address
            )
            refused(await world.relays.post(body, getattr(world.attacker, token)))


async def test_a_wei_of_value_is_refused_with_any_call(world: World) -> None:
    async with world.relays.chain.nothing_published():
        for contract in CONTRACTS:
            data = several(contract, world.permit_call(contract), world.allowed(contract))
            refused(await world.try_call(contract, data, value="1"))


# Permits and signatures


def forgeries(permit: Permit) -> list[Permit]:
    """Permits and authorizations that their owner has not signed."""
    return [
        permit.but(value=permit.value + 1),
        permit.but(value=EVERYTHING),
        permit.but(deadline=permit.deadline + 1),
        permit.but(v=55 - permit.v),
        permit.but(r=permit.s, s=permit.r),
        permit.but(r=bytes(32), s=bytes(32)),
        # Of the same signer, but malleable, so that LTZ refuses it.
        permit.but(
            v=55 - permit.v, s=(CURVE_ORDER - int.from_bytes(permit.s, "big")).to_bytes(32, "big")
        ),
    ]


async def test_only_the_users_own_permit_to_the_contract_is_accepted_beside_a_call(
    world: World,
) -> None:
    relays, mine = world.relays, world.permits["PerkNFT"]
    theirs = await relays.permit(world.victim, "PerkNFT", SHARE)
    strays = [
        theirs,
        theirs.but(owner=world.attacker_address),
        mine.but(owner=world.victim_address),
        await relays.permit(world.attacker, world.attacker_address, SHARE),
        await relays.permit(world.attacker, THIEF, SHARE),
        await relays.permit(world.attacker, world.operator, SHARE),
        await relays.permit(world.attacker, "PointsSale", SHARE),
        await relays.permit(world.attacker, "LTZ", SHARE),
        mine.but(spender=THIEF),
        *forgeries(mine),
    ]
    async with relays.chain.nothing_published():
        for permit in strays:
            data = world.allowed("PerkNFT")
            refused(await world.try_call("PerkNFT", data, metadata={"permit": permit.json}))


async def test_only_the_users_own_permit_is_relayed_in_a_multicall_or_alone(world: World) -> None:
    relays, mine = world.relays, world.permits["PerkNFT"]
    theirs = await relays.permit(world.victim, "PerkNFT", SHARE)
    strays = [
        theirs,
        theirs.but(owner=world.attacker_address),
        mine.but(owner=world.victim_address),
        *forgeries(mine),
    ]
    async with relays.chain.nothing_published():
        for permit in strays:
            data = permit.call_on("PerkNFT")
            refused(await world.try_call("PerkNFT", data))
            refused(await world.try_call("PerkNFT", several("PerkNFT", data)))
            data = several("PerkNFT", data, world.allowed("PerkNFT"))
            refused(await world.try_call("PerkNFT", data))
            refused(await world.try_call("LTZ", permit.call))


async def test_a_permit_alone_names_one_of_the_three_contracts(world: World) -> None:
    spenders = [
        world.attacker_address,
        THIEF,
        world.victim_address,
        "LTZ",
        *world.relays.chain.operators,
    ]
    permits = [await world.relays.permit(world.attacker, each, SHARE) for each in spenders]
    theirs = await world.relays.permit(world.victim, world.attacker_address, SHARE)
    async with world.relays.chain.nothing_published():
        for permit in [*permits, theirs]:
            refused(await world.try_call("LTZ", permit.call))
            refused(await world.try_call("LTZ", several("LTZ", permit.call)))


async def test_transfer_from_moves_only_the_users_own_permitted_amount(
    world: World,
) -> None:
    relays, mine = world.relays, world.permits["LTZ"]
    to_a_contract = await relays.permit(world.attacker, "PerkNFT", SHARE)
    theirs = await relays.permit(world.victim, world.operator, SHARE)
    pairs = [
        (mine, (world.attacker_address, THIEF, SHARE - 1)),
        (mine, (world.attacker_address, THIEF, SHARE + 1)),
        (mine, (world.victim_address, THIEF, SHARE)),
        (mine, (world.operator, THIEF, SHARE)),
        (to_a_contract, (world.attacker_address, THIEF, SHARE)),
        (theirs, (world.victim_address, THIEF, SHARE)),
        (theirs, (world.attacker_address, THIEF, SHARE)),
        (mine.but(owner=world.victim_address), (world.victim_address, THIEF, SHARE)),
    ]
    of_an_open_allowance = call("LTZ", "transferFrom", world.victim_address, THIEF, SHARE)
    async with relays.chain.nothing_published():
        refused(
            await world.try_call(
                "LTZ", call("LTZ", "transferFrom", world.attacker_address, THIEF, SHARE)
            )
        )
        refused(await relays.relay(world.victim, "LTZ", of_an_open_allowance))
        for permit, moved in pairs:
            data = call("LTZ", "transferFrom", *moved)
            refused(await world.try_call("LTZ", several("LTZ", permit.call, data)))
            refused(await world.try_call("LTZ", data, metadata={"permit": permit.json}))


async def test_a_call_signed_by_another_user_is_not_relayed(world: World) -> None:
    chain, attacker, victim = world.relays.chain, world.attacker.account, world.victim.account
    signed = {
        "PerkNFT": [
            await claim_with_sig(chain, victim, world.victim_address, FREE, claims=1),
            await claim_with_sig(chain, victim, world.attacker_address, FREE),
            await claim_with_sig(chain, attacker, world.victim_address, FREE, claims=1),
            await claim_with_sig(
                chain, attacker, world.attacker_address, FREE, signed_collection=2
            ),
        ],
        "PointsSale": [
            await buy_with_sig(chain, victim, world.victim_address, ITEM, 1, EVERYTHING),
            await buy_with_sig(chain, victim, world.attacker_address, ITEM, 1, EVERYTHING),
        ],
        "BusinessEscrow": [
            await settle_with_sig(chain, victim, "Release", world.deal),
            await settle_with_sig(chain, attacker, "Release", world.deal),
            await settle_with_sig(chain, victim, "Refund", world.deal),
            await settle_with_sig(chain, attacker, "Refund", world.deal),
        ],
        "LTZ": [
            await transfer(chain, victim, world.victim_address, world.attacker_address, SHARE),
            await transfer(chain, victim, world.attacker_address, THIEF, SHARE),
            await transfer(chain, attacker, world.victim_address, world.attacker_address, SHARE),
        ],
    }
    async with chain.nothing_published():
        for contract, calls in signed.items():
            for data in calls:
                refused(await world.try_call(contract, data))
                refused(await world.try_call(contract, several(contract, data)))


# Encodings


def spoiled(data: bytes, principal: int = 0) -> list[bytes]:
    """Malformed encodings that a contract may decode as the same call or as another."""
    dirty = with_word(data, principal, word_in(data, principal) | 1 << 160)
    dirtiest = with_word(data, principal, word_in(data, principal) | 1 << 255)
    return [
        dirty,
        dirtiest,
        data + b"\x00",
        data + bytes(32),
        data + JUNK,
        data[:-1],
        data[:-32],
        data[:4],
        data[:3],
        data[:4] + bytes(32) + data[4:],
    ]


async def test_noncanonical_calldata_is_refused(world: World) -> None:
    user = await world.relays.user()
    claim, deal = world.relays.claim(user), a_word()
    lock = world.relays.lock(user, THIEF, SHARE, 2**31, deal)
    permit = (await world.relays.permit(user, "PerkNFT", SHARE)).call_on("PerkNFT")
    async with world.relays.chain.nothing_published():
        for data in [
            *spoiled(claim),
            *spoiled(permit),
            with_word(permit, 3, word_in(permit, 3) | 1 << 8),
        ]:
            refused(await world.relays.relay(user, "PerkNFT", data))
            refused(await world.relays.relay(user, "PerkNFT", several("PerkNFT", data)))
        for data in [*spoiled(lock), with_word(lock, 3, 2**31 | 1 << 40)]:
            refused(await world.relays.relay(user, "BusinessEscrow", data))
    (await world.relays.relay(user, "PerkNFT", claim)).assert_relayed()


def shuffled(first: bytes, second: bytes) -> list[bytes]:
    """Multicalls of two calls in layouts that Solidity accepts but no encoder produces."""
    plain = several("PerkNFT", first, second)
    head, body = plain[:4], plain[36:]
    gap = with_word(plain, 2, word_in(plain, 2) + 32)
    gap = with_word(gap, 3, word_in(gap, 3) + 32)
    where = 4 + 4 * 32
    length = 32 + -(-len(first) // 32) * 32
    crossed = with_word(with_word(plain, 2, len(plain) - where + 64 - length), 3, 64)
    crossed = crossed[:where] + plain[where + length :] + plain[where : where + length]
    return [
        head + (64).to_bytes(32, "big") + JUNK + body,
        gap[:where] + JUNK + gap[where:],
        crossed,
        with_word(plain, 3, word_in(plain, 2)),
        with_word(plain, 2, word_in(plain, 3)),
        plain[:-1] + b"\x01",
        with_word(plain, 1, 1),
        with_word(plain, 1, 3),
        with_word(plain, 1, 2**255),
        with_word(plain, 0, 2**256 - 32),
        plain + bytes(32),
    ]


async def test_a_multicall_with_a_noncanonical_layout_is_refused(world: World) -> None:
    user = await world.relays.user()
    permit = (await world.relays.permit(user, "PerkNFT", SHARE)).call_on("PerkNFT")
    claim = world.relays.claim(user)
    async with world.relays.chain.nothing_published():
        for data in shuffled(permit, claim):
            refused(await world.relays.relay(user, "PerkNFT", data))
    data = several("PerkNFT", permit, claim)
    (await world.relays.relay(user, "PerkNFT", data)).assert_relayed()


async def test_dirty_bytes_after_a_signature_are_refused(world: World) -> None:
    user = await world.relays.user()
    data = await claim_with_sig(world.relays.chain, user.account, user.wallet, FREE)
    async with world.relays.chain.nothing_published():
        for bad in (data[:-1] + b"\x01", with_word(data, 6, word_in(data, 6) + 32), data + JUNK):
            refused(await world.relays.relay(user, "PerkNFT", bad))
    (await world.relays.relay(user, "PerkNFT", data)).assert_relayed()


# Tokens


def text_of(part: object) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def bytes_in(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@dataclass(frozen=True)
class Honest:
    """The parts of a valid token, and the key that verifies it."""

    token: str
    jwk: dict[str, Any]

    @property
    def header(self) -> dict[str, Any]:
        attacked: dict[str, Any] = json.loads(bytes_in(self.token.split(".")[0]))
        return attacked

    @property
    def claims(self) -> dict[str, Any]:
        attacked: dict[str, Any] = json.loads(bytes_in(self.token.split(".")[1]))
        return attacked

    @property
    def signature(self) -> str:
        return self.token.split(".")[2]

    def put_together(self, signature: bytes | str, **header: object) -> str:
        unsigned_token = text_of(self.header | header) + "." + text_of(self.claims)
        end = signature if isinstance(signature, str) else text_of(signature)
        return f"{unsigned_token}.{end}"

    def by_hmac(self, secret: bytes, algorithm: str = "HS256") -> str:
        unsigned = self.put_together(b"", alg=algorithm).removesuffix(".")
        digest = getattr(hashlib, f"sha{algorithm[2:]}")
        return f"{unsigned}.{text_of(hmac.new(secret, unsigned.encode(), digest).digest())}"

    @property
    def public_keys(self) -> list[bytes]:
        """The public key in the formats that a library may take for an HMAC secret."""
        key: Any = jwt.PyJWK(self.jwk).key
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return [pem, pem.strip(), der, json.dumps(self.jwk).encode(), bytes_in(self.jwk["x"])]

    def by_another_key(self, **header: object) -> str:
        key = ec.generate_private_key(ec.SECP256R1())
        return jwt.encode(self.claims, key, "ES256", {**self.header, **header})


def forged(honest: Honest) -> dict[str, str]:
    own = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(own.public_key()))
    by_own = jwt.encode(honest.claims, own, "ES256", {**honest.header, "jwk": public})
    return {
        "garbage": "garbage",
        "three parts of garbage": "a.b.c",
        "no parts": "..",
        "not a signature": honest.put_together(b"x"),
        "no signature": honest.put_together(b""),
        "alg none": honest.put_together(b"", alg="none"),
        "alg NONE": honest.put_together(b"", alg="NONE"),
        "alg none, signature kept": honest.put_together(honest.signature, alg="none"),
        "a signature of nothing": honest.put_together(bytes(64)),
        "a changed claim": honest.put_together(honest.signature, extra=1),
        "another curve": honest.put_together(honest.signature, alg="ES384"),
        "another key": honest.by_another_key(),
        "an unknown key": honest.by_another_key(kid="nobody's"),
        "a key of its own": by_own,
        "another type": honest.by_another_key(typ="none"),
        **{f"HS256 {n}": honest.by_hmac(key) for n, key in enumerate(honest.public_keys)},
        "HS512": honest.by_hmac(honest.public_keys[0], "HS512"),
    }


OTHER_CLAIMS: dict[str, dict[str, object]] = {
    "another audience": {"aud": "another-app"},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://privy.io"},
    "no issuer": {"iss": None},
    "no subject": {"sub": None},
    "no expiry": {"exp": None},
    "an expiry that is no number": {"exp": "never"},
    "expired by a second": {"expiresIn": -1},
    "expired long ago": {"expiresIn": -86_400},
}


async def honest_token(world: World) -> Honest:
    url = world.relays.instance.dev_json["sandbox"]["jwksUrl"]
    async with world.relays.instance.http.get(url) as reply:
        keys = (await reply.json())["keys"]
    token = world.attacker.access_token
    kid = jwt.get_unverified_header(token)["kid"]
    return Honest(token, next(key for key in keys if key["kid"] == kid))


async def refuses_token(world: World, token: str | None) -> None:
    body = world.relays.body(world.attacker, "PerkNFT", world.allowed("PerkNFT"))
    answer = await world.relays.post(body, token)
    answer.assert_refused(401, "UNAUTHORIZED")


async def test_a_forged_token_is_refused(world: World) -> None:
    honest = await honest_token(world)
    async with world.relays.chain.nothing_published():
        await refuses_token(world, None)
        for token in forged(honest).values():
            await refuses_token(world, token)


@pytest.mark.parametrize("which", ["accessToken", "identityToken"])
async def test_a_providers_token_for_another_audience_or_too_old_is_refused(
    world: World, which: str
) -> None:
    async with world.relays.chain.nothing_published():
        for claims in OTHER_CLAIMS.values():
            tokens = await world.relays.tokens(world.attacker, **claims)
            await refuses_token(world, tokens[which])


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic dTpw", "Token x", "Bearer a b"])
async def test_an_authorization_without_a_bearer_token_is_refused(
    world: World, header: str
) -> None:
    body = world.relays.body(world.attacker, "PerkNFT", world.allowed("PerkNFT"))
    async with world.relays.chain.nothing_published():
        answer = await world.relays.ask("POST", "/relay", {"Authorization": header}, body)
    answer.assert_refused(401, "UNAUTHORIZED")


async def test_a_token_of_twenty_kilobytes_is_refused(world: World) -> None:
    body = world.relays.body(world.attacker, "PerkNFT", world.allowed("PerkNFT"))
    tokens = await world.relays.tokens(world.attacker, extra="x" * 20_000)
    async with world.relays.chain.nothing_published():
        for token in ("x" * 20_000, tokens["accessToken"]):
            answer = await world.relays.post(body, token)
            answer.assert_refused(401, "UNAUTHORIZED")


@pytest.mark.parametrize("token", ["access_token", "identity_token"])
async def test_the_providers_access_token_and_identity_token_are_both_accepted(
    world: World, token: str
) -> None:
    user = await world.relays.user()
    body = world.relays.body(user, "PerkNFT", world.relays.claim(user))
    (await world.relays.post(body, getattr(user, token))).assert_relayed()


# Foreign origins and malformed requests


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://shop.example",
        "https://shop.example.evil.example",
        "https://evilshop.example",
        "https://shop.example@evil.example",
        "https://shop.example, https://evil.example",
        "*",
    ],
)
async def test_a_page_of_a_foreign_origin_is_refused(world: World, origin: str) -> None:
    body = world.relays.body(world.attacker, "PerkNFT", world.allowed("PerkNFT"))
    async with world.relays.chain.nothing_published():
        answer = await world.relays.post(body, world.attacker.access_token, Origin=origin)
    refused(answer)
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Vary"] == "Origin"


@pytest.mark.parametrize(
    "origin",
    ["https://shop.example", "https://www.shop.example:8443", "http://127.0.0.1:3000"],
)
async def test_a_page_of_the_brand_or_of_localhost_is_accepted(world: World, origin: str) -> None:
    body = world.relays.body(world.attacker, "PerkNFT", world.allowed("PerkNFT"))
    answer = await world.relays.post(body, None, Origin=origin)
    answer.assert_refused(401, "UNAUTHORIZED")
    preflight = await world.relays.ask("OPTIONS", "/relay", {"Origin": origin})
    assert preflight.status == 204
    for each in (answer, preflight):
        assert each.headers["Access-Control-Allow-Origin"] == origin
        assert "X-RateLimit-Limit" in each.headers["Access-Control-Expose-Headers"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"to"', "[" * 5000, '{"value": NaN}'])
async def test_a_body_that_is_no_object_is_refused(world: World, text: str) -> None:
    headers = {
        "Authorization": f"Bearer {world.attacker.access_token}",
        "Content-Type": "application/json",
    }
    url = world.relays.instance.base_url + "/relay"
    async with world.relays.instance.http.post(url, data=text, headers=headers) as reply:
        body = await reply.json()
    assert reply.status == 400, body
    assert body.keys() <= {"error", "code", "details"}


async def test_refusals_do_not_count_against_the_attackers_limit(world: World) -> None:
    """The refused requests of the tests above do not use up the hourly limit."""
    answer = await world.try_call("PerkNFT", world.allowed("PerkNFT"), value="1")
    assert answer.limits[:2] == (HOURLY, HOURLY)
