"""Custodial wallets: one for each name, joined by verified tokens, signing only LTZ permits."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import coincurve
import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from hypothesis import given
from hypothesis import strategies as st

from ltzd.actions.users import custodial_signing as local_signing
from ltzd.actions.users.custodial_signing import AllowedMessage, ltz_permits
from ltzd.actions.users.custodial_wallets import CustodialWallets, LinkingTokenVerifier
from ltzd.actions.users.identity_provider import IdentityProvider, TokenVerifier
from ltzd.errors import DatabaseUnavailable, Misconfigured, Unauthorized
from ltzd.providers.identity.client import IdentityUser
from ltzd.providers.oidc.claims import OidcUser
from ltzd.providers.oidc.policy import OidcPolicy
from ltzd.providers.oidc.tokens import OidcTokens
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.store.database import Connection, Pool, open_pool, session
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.retention import erasure
from ltzd.store.users import custodial_users
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.values import Address, checksummed, hex_of
from tests.support.rows.core import a_wallet, value
from tests.support.services.identity import as_json
from tests.support.services.oidc import an_issuer
from tests.support.waiting import until

ISSUER = "https://login.example/"
LTZ_AT = a_wallet(0x17A)
CHAIN_ID = 31337
SIGNED_HERE = (ltz_permits(CHAIN_ID, LTZ_AT),)
SEALER = Sealer([b"\x05" * 32])
EMAIL = "ann@shop.example"
DISCORD = OAuthAccount("discord", "308994132968210433")
GITHUB = OAuthAccount("github", "583231")
DATA: Mapping[str, Any] = {
    "types": {
        "EIP712Domain": [
            {"name": "name", "type": "string"},
            {"name": "version", "type": "string"},
            {"name": "chainId", "type": "uint256"},
            {"name": "verifyingContract", "type": "address"},
        ],
        "Permit": [
            {"name": "owner", "type": "address"},
            {"name": "spender", "type": "address"},
            {"name": "value", "type": "uint256"},
            {"name": "nonce", "type": "uint256"},
            {"name": "deadline", "type": "uint256"},
        ],
    },
    "primaryType": "Permit",
    "domain": {
        "name": "Loyalty Token",
        "version": "1",
        "chainId": CHAIN_ID,
        "verifyingContract": hex_of(LTZ_AT),
    },
    "message": {
        "owner": "0x" + "00" * 20,
        "spender": hex_of(a_wallet(9)),
        "value": str(10**20),
        "nonce": 0,
        "deadline": 1_800_000_000,
    },
}


@pytest.fixture
def wallets(pool: Pool) -> CustodialWallets:
    return CustodialWallets(pool, SEALER, ISSUER, SIGNED_HERE)


async def hide(pool: Pool, email: str) -> None:
    async with session(pool) as connection:
        await erasure.hide_addresses(connection, ErasedAddresses(SEALER), [email])


def vouched(subject: str = "user-7", *accounts: OAuthAccount, email: str | None = None) -> OidcUser:
    return OidcUser(subject, None, accounts, email)


async def users_in(pool: Pool) -> int:
    return int(await pool.fetchval("SELECT count(*) FROM custodial_users"))


def test_custodial_wallets_implement_the_identity_provider_protocol(
    wallets: CustodialWallets,
) -> None:
    identities: IdentityProvider = wallets
    tokens: TokenVerifier = LinkingTokenVerifier(OidcTokens(OidcPolicy(ISSUER, ("ltzd",))), wallets)
    assert identities
    assert tokens


# --- names --------------------------------------------------------------------------------------


async def test_a_name_always_has_the_same_wallet(wallets: CustodialWallets, pool: Pool) -> None:
    ann = await wallets.wallet_of_email("Ann@Shop.Example")
    account = await wallets.wallet_of_account(DISCORD)

    assert await wallets.wallet_of_email(EMAIL) == ann
    assert await wallets.wallet_of_account(DISCORD) == account
    assert len({ann.wallet, account.wallet}) == 2
    assert await wallets.wallets_of(ann.subject) == (ann.wallet,)
    again = CustodialWallets(pool, SEALER, ISSUER, SIGNED_HERE)
    assert await again.wallet_of_email(EMAIL) == ann, "the wallet is read from the database"


async def test_an_erased_address_keeps_its_wallet_and_its_owner(
    wallets: CustodialWallets, pool: Pool
) -> None:
    ann = await wallets.wallet_of_email(EMAIL)
    await hide(pool, EMAIL)

    assert await wallets.wallet_of_email(EMAIL) == ann
    assert await wallets.link(vouched(email=EMAIL)) == (ann.wallet,)
    assert await wallets.link(vouched("another-user", email=EMAIL)) != (ann.wallet,)
    assert (
        await pool.fetchval("SELECT count(*) FROM custodial_accounts WHERE name = $1", EMAIL) == 0
    )


async def test_fifty_concurrent_requests_get_one_wallet(pool: Pool) -> None:
    processes = [CustodialWallets(pool, SEALER, ISSUER, SIGNED_HERE) for _ in range(5)]
    chosen = list(itertools.islice(itertools.cycle(processes), 50))

    emails = await asyncio.gather(*(each.wallet_of_email(EMAIL) for each in chosen))
    accounts = await asyncio.gather(*(each.wallet_of_account(DISCORD) for each in chosen))

    assert len(set(emails)) == len(set(accounts)) == 1
    assert await users_in(pool) == 2
    assert all(each.under_way == 0 for each in processes)


async def test_creations_in_progress_are_counted_as_under_way(wallets: CustodialWallets) -> None:
    making = [asyncio.create_task(wallets.wallet_of_email(f"{n}@x.example")) for n in range(3)]
    await asyncio.sleep(0)

    assert wallets.under_way == 3
    await asyncio.gather(*making)
    assert wallets.under_way == 0


async def test_unverified_facts_about_an_account_join_no_users(
    wallets: CustodialWallets, pool: Pool
) -> None:
    ann = await wallets.wallet_of_email(EMAIL)
    claimed_account = OAuthAccount("discord", "1" * 18, username="ann", name="Ann", email=EMAIL)

    other = await wallets.wallet_of_account(claimed_account)
    namesake = await wallets.wallet_of_account(OAuthAccount("github", "1" * 18))

    assert len({ann.wallet, other.wallet, namesake.wallet}) == 3
    assert await wallets.accounts_of(other.subject) == ()
    assert await wallets.wallets_of(other.subject) == (other.wallet,)


@pytest.mark.parametrize("text", ["email", "owned", "subject"])
async def test_no_text_makes_an_email_address_another_kind_of_name(
    wallets: CustodialWallets, text: str
) -> None:
    person = await wallets.link(vouched("user-7", DISCORD, email=EMAIL))
    root = (await wallets.wallet_of_email(EMAIL)).subject

    for name in (root, f"{ISSUER} user-7", f"{text} {root}", DISCORD.user_id):
        assert (await wallets.wallet_of_email(name)).wallet not in person


async def test_an_unknown_subject_has_no_wallets_and_no_accounts(wallets: CustodialWallets) -> None:
    for subject in ("user-7", "", "ltzd:none", f"{ISSUER} user-7"):
        assert await wallets.wallets_of(subject) == ()
        assert await wallets.accounts_of(subject) == ()


# --- linking ------------------------------------------------------------------------------------


async def test_a_first_log_in_creates_one_wallet(wallets: CustodialWallets, pool: Pool) -> None:
    wallets_of_each = await asyncio.gather(*(wallets.link(vouched()) for _ in range(20)))

    assert len(set(wallets_of_each)) == 1
    assert len(wallets_of_each[0]) == 1
    assert await users_in(pool) == 1
    assert await wallets.wallets_of("user-7", wanted=wallets_of_each[0][0]) == wallets_of_each[0]


async def test_a_verified_email_address_gives_the_log_in_its_wallet(
    wallets: CustodialWallets, pool: Pool
) -> None:
    ann = await wallets.wallet_of_email(EMAIL)

    assert await wallets.link(vouched(email=EMAIL)) == (ann.wallet,)

    assert await wallets.link(vouched(email=EMAIL)) == (ann.wallet,)
    assert await wallets.link(vouched()) == (ann.wallet,), "later tokens do not change it"
    assert await wallets.wallets_of("user-7") == (ann.wallet,)
    assert await wallets.wallet_of_email(EMAIL) == ann
    assert await users_in(pool) == 1


async def test_an_email_a_pregenerated_account_and_a_login_become_one_person(
    wallets: CustodialWallets,
) -> None:
    ann = await wallets.wallet_of_email(EMAIL)
    account = await wallets.wallet_of_account(DISCORD)

    person = await wallets.link(vouched("user-7", DISCORD, email=EMAIL))

    assert person == (ann.wallet, account.wallet), (
        "the older wallet is the first; no wallet is lost"
    )
    for subject in ("user-7", ann.subject, account.subject):
        assert await wallets.wallets_of(subject) == person
        assert await wallets.accounts_of(subject) == (DISCORD,)
    assert await wallets.wallet_of_email(EMAIL) == ann
    assert await wallets.wallet_of_account(DISCORD) == ann, "later grants go to one wallet"


async def test_the_order_of_a_tokens_names_does_not_matter(wallets: CustodialWallets) -> None:
    account = await wallets.wallet_of_account(DISCORD)
    ann = await wallets.wallet_of_email(EMAIL)

    person = await wallets.link(vouched("user-7", DISCORD, email=EMAIL))

    assert person == (account.wallet, ann.wallet)


async def test_new_names_of_a_token_lead_to_the_older_wallet(wallets: CustodialWallets) -> None:
    [first] = await wallets.link(vouched(email=EMAIL))
    assert (await wallets.wallet_of_email(EMAIL)).wallet == first

    assert await wallets.link(vouched("user-7", DISCORD, GITHUB)) == (first,)
    assert (await wallets.wallet_of_account(DISCORD)).wallet == first
    assert await wallets.accounts_of("user-7") == (DISCORD, GITHUB)


async def test_what_is_verified_later_joins_a_login_that_has_a_wallet(
    wallets: CustodialWallets,
) -> None:
    ann = await wallets.wallet_of_email(EMAIL)
    [own] = await wallets.link(vouched())
    assert own != ann.wallet, "an address that the token does not verify has no owner"

    assert await wallets.link(vouched(email=EMAIL)) == (ann.wallet, own)
    [github] = {(await wallets.wallet_of_account(GITHUB)).wallet}
    assert await wallets.link(vouched("user-7", GITHUB)) == (ann.wallet, own, github)


async def test_a_user_is_owned_by_the_first_subject_that_proves_a_name(
    wallets: CustodialWallets, pool: Pool
) -> None:
    ann = await wallets.wallet_of_email(EMAIL)
    assert await wallets.link(vouched("first", email=EMAIL)) == (ann.wallet,)

    [other] = await wallets.link(vouched("second", email=EMAIL))

    assert other != ann.wallet
    assert await wallets.wallets_of("first") == (ann.wallet,)
    assert await wallets.wallet_of_email(EMAIL) == ann
    assert await wallets.link(vouched("second", email=EMAIL)) == (other,)
    assert await users_in(pool) == 2


async def test_of_two_concurrent_proofs_of_a_name_one_succeeds(
    wallets: CustodialWallets, pool: Pool
) -> None:
    for number in range(8):
        account = OAuthAccount("github", str(583231 + number))
        kept = await wallets.wallet_of_account(account)

        both = await asyncio.gather(
            *(wallets.link(vouched(f"{side} {number}", account)) for side in "ab")
        )

        assert sorted(kept.wallet in linked for linked in both) == [False, True]
        assert [len(linked) for linked in both] == [1, 1]


async def test_concurrent_logins_and_events_for_one_name_end_on_one_wallet(
    wallets: CustodialWallets, pool: Pool
) -> None:
    """Either the log-in finds the event's user, or the event finds the log-in's."""
    for number in range(10):
        email = f"{number}@shop.example"
        logins = [wallets.link(vouched(f"user {number}", email=email)) for _ in range(2)]
        events = [wallets.wallet_of_email(email) for _ in range(3)]
        users, _ = await asyncio.gather(asyncio.gather(*events), asyncio.gather(*logins))
        named = {user.wallet for user in users}

        assert len(named) == 1
        assert named <= set(await wallets.wallets_of(f"user {number}"))


@pytest.mark.parametrize("step", ["create_person", "read_home"])
async def test_an_event_for_a_name_waits_for_the_log_in_that_links_it(
    wallets: CustodialWallets, pool: Pool, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The log-in has read that nobody has the name, and creates the person's wallet."""
    original = getattr(custodial_users, step)
    events: list[asyncio.Task[IdentityUser]] = []

    async def after_an_event_began(connection: Connection, *arguments: Any) -> Any:
        events.append(asyncio.create_task(wallets.wallet_of_email(EMAIL)))
        await until(lambda: _a_session_waits_for_a_lock(pool))
        return await original(connection, *arguments)

    monkeypatch.setattr(custodial_users, step, after_an_event_began)
    person = await wallets.link(vouched(email=EMAIL))

    assert len(person) == 1
    assert [(await event).wallet for event in events] == list(person)


async def _a_session_waits_for_a_lock(pool: Pool) -> bool:
    waiting: bool = await value(
        pool,
        "SELECT EXISTS (SELECT FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event = 'advisory')",
    )
    return waiting


async def test_tokens_that_list_the_same_names_never_block_each_other(
    wallets: CustodialWallets,
) -> None:
    names = [OAuthAccount("github", str(583231 + number)) for number in range(4)]
    orders = list(itertools.permutations(names))

    wallets_of_each = await asyncio.gather(
        *(wallets.link(vouched(f"user {at}", *order)) for at, order in enumerate(orders))
    )

    owners = [each for each in wallets_of_each if len(each) > 0]
    assert len(owners) == len(orders)
    assert len({wallet for each in wallets_of_each for wallet in each}) == len(orders)
    accounts = [await wallets.accounts_of(f"user {at}") for at in range(len(orders))]
    assert sorted(map(len, accounts))[-2:] == [0, 4], "all names belong to one user"


async def test_another_issuers_subject_is_another_person(
    wallets: CustodialWallets, pool: Pool
) -> None:
    [mine] = await wallets.link(vouched())
    elsewhere = CustodialWallets(pool, SEALER, "https://login.other.example", SIGNED_HERE)

    assert await elsewhere.wallets_of("user-7") == ()
    assert await elsewhere.link(vouched()) != (mine,)


async def test_a_link_that_fails_half_way_changes_nothing(
    wallets: CustodialWallets, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await wallets.wallet_of_email(EMAIL)
    await wallets.wallet_of_account(DISCORD)

    async def fail(*_: object) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as patched:
        patched.setattr("ltzd.store.users.custodial_users.read_home", fail)
        with pytest.raises(DatabaseUnavailable):
            await wallets.link(vouched("user-7", DISCORD, email=EMAIL))
    assert await wallets.wallets_of("user-7") == ()

    assert len(await wallets.link(vouched("user-7", DISCORD, email=EMAIL))) == 2
    assert (await wallets.wallets_of("user-7"))[0] == ann.wallet


async def test_a_token_gives_all_wallets_of_its_user(wallets: CustodialWallets, pool: Pool) -> None:
    async with an_issuer() as issuer, OidcTokens(issuer.policy()) as tokens:
        linking = LinkingTokenVerifier(
            tokens, CustodialWallets(pool, SEALER, issuer.issuer, SIGNED_HERE)
        )
        ann = await wallets.wallet_of_email(EMAIL)

        stranger = await linking.user_of(issuer.token(sub="other", email=EMAIL))
        user = await linking.user_of(issuer.token(email=EMAIL, email_verified=True))

        assert user.wallets == (ann.wallet,)
        assert stranger.wallets is not None
        assert ann.wallet not in stranger.wallets
        with pytest.raises(Unauthorized):
            await linking.user_of(issuer.token(sub=ann.subject))
        with pytest.raises(Unauthorized):
            await linking.user_of(issuer.signed(as_json({"sub": "user-7"})))


# --- signing ------------------------------------------------------------------------------------


def changed(**changes: Any) -> dict[str, Any]:
    """Changes the typed data: `domain__name=…` replaces a nested member, None removes it."""
    data: dict[str, Any] = dict(DATA)
    for path, content in changes.items():
        section, _, name = path.partition("__")
        data[section] = {**data[section], name: content} if name else content
        if content is None:
            del (data[section] if name else data)[name or section]
    return data


def permit_of(wallet: Address, **changes: Any) -> dict[str, Any]:
    return changed(**{"message__owner": hex_of(wallet), **changes})


async def test_an_ltz_permit_gets_the_same_signature_as_from_a_wallet(
    wallets: CustodialWallets,
) -> None:
    user = await wallets.wallet_of_email(EMAIL)
    data = permit_of(user.wallet)

    signature = await wallets.sign_typed_data(user.wallet, data)

    assert len(signature) == 65
    assert signature[64] in {27, 28}
    signable = encode_typed_data(full_message=data)
    assert Account.recover_message(signable, signature=signature) == checksummed(user.wallet)


async def test_every_form_of_the_same_values_is_the_same_message(wallets: CustodialWallets) -> None:
    user = await wallets.wallet_of_email(EMAIL)
    expected = await wallets.sign_typed_data(user.wallet, permit_of(user.wallet))
    types = {"Permit": DATA["types"]["Permit"]}

    for changes in (
        {"message__owner": user.wallet},
        {"message__owner": checksummed(user.wallet), "message__value": 10**20},
        {"domain__chainId": str(CHAIN_ID), "domain__verifyingContract": LTZ_AT},
        {"types": types, "message__nonce": "0"},
    ):
        assert await wallets.sign_typed_data(user.wallet, permit_of(user.wallet, **changes)) == (
            expected
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"primaryType": "TransferWithAuthorization"},
        {"primaryType": None},
        {"primaryType": ["Permit"]},
        {"primaryType": "EIP712Domain"},
        {"domain": None},
        {"domain__name": "Another Token"},
        {"domain__version": "2"},
        {"domain__version": None},
        {"domain__chainId": 1},
        {"domain__chainId": True},
        {"domain__verifyingContract": hex_of(a_wallet(1))},
        {"domain__verifyingContract": None},
        {"domain__salt": "0x" + "00" * 32},
        {"message": None},
        {"message": []},
        {"message": "0x" + "ab" * 32},
        {"message__owner": hex_of(a_wallet(3))},
        {"message__owner": None},
        {"message__spender": "0x12"},
        {"message__value": -1},
        {"message__value": 2**256},
        {"message__value": "1e18"},
        {"message__value": "\u0661"},
        {"message__value": 1.0},
        {"message__value": True},
        {"message__deadline": None},
        {"message__more": 1},
        {"more": 1},
        {"types": None},
        {"types": {}},
        {"types__Permit": DATA["types"]["Permit"][:4]},
        {"types__Permit": DATA["types"]["Permit"][::-1]},
        {"types__Permit": "owner"},
        {"types__Permit": [{**each, "type": "bytes32"} for each in DATA["types"]["Permit"]]},
        {"types__EIP712Domain": [{"name": "name", "type": "string"}]},
        {"types__Mail": [{"name": "text", "type": "string"}]},
    ],
    ids=lambda changes: next(iter(changes)) if isinstance(changes, dict) else "",
)
def test_typed_data_other_than_an_ltz_permit_is_refused(changes: dict[str, Any]) -> None:
    secret, wallet = local_signing.new_key()
    assert local_signing.sign(secret, wallet, permit_of(wallet), SIGNED_HERE)

    with pytest.raises(ValueError, match=r"."):
        local_signing.sign(secret, wallet, permit_of(wallet, **changes), SIGNED_HERE)


async def test_invalid_typed_data_is_refused_before_the_key_is_read(
    wallets: CustodialWallets, pool: Pool
) -> None:
    pool.terminate()

    with pytest.raises(ValueError, match="owner is not the wallet"):
        await wallets.sign_typed_data(a_wallet(1), permit_of(a_wallet(2)))


async def test_a_wallet_that_is_not_kept_here_does_not_sign(wallets: CustodialWallets) -> None:
    with pytest.raises(ValueError, match="not kept here"):
        await wallets.sign_typed_data(a_wallet(1), permit_of(a_wallet(1)))


async def test_a_message_that_is_not_in_the_allowed_list_is_not_signed(pool: Pool) -> None:
    nothing = CustodialWallets(pool, SEALER, ISSUER, ())
    user = await nothing.wallet_of_email(EMAIL)

    with pytest.raises(ValueError, match="does not sign this type of message for this domain"):
        await nothing.sign_typed_data(user.wallet, permit_of(user.wallet))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=4,
    ),
    st.sampled_from(
        ["types", "domain", "message", "primaryType", "message__owner", "types__Permit"]
    ),
)
def test_no_shape_of_data_makes_signing_fail_otherwise(value: Any, place: str) -> None:
    wallet = a_wallet(1)
    data = permit_of(wallet)
    section, _, name = place.partition("__")
    data[section] = {**data[section], name: value} if name else value
    try:
        digest = local_signing.digest_of(wallet, data, SIGNED_HERE)
    except ValueError:
        return
    assert digest == local_signing.digest_of(wallet, permit_of(wallet), SIGNED_HERE)


# --- keys ---------------------------------------------------------------------------------------


async def test_a_wallets_key_is_stored_sealed_and_matches_its_address(
    wallets: CustodialWallets, pool: Pool
) -> None:
    user = await wallets.wallet_of_email(EMAIL)

    row = await pool.fetchrow("SELECT * FROM custodial_users")
    secret = SEALER.open_wallet_key(row["sealed"], row["key_id"], user.subject, user.wallet)

    assert len(secret) == 32
    assert Account.from_key(secret).address == checksummed(user.wallet)
    assert secret not in b"".join(value for value in row.values() if isinstance(value, bytes))
    assert row["key_id"] == SEALER.key_id


async def test_a_row_that_was_moved_or_sealed_with_an_unknown_key_cannot_sign(
    wallets: CustodialWallets, pool: Pool
) -> None:
    ann = await wallets.wallet_of_email(EMAIL)
    bob = await wallets.wallet_of_email("bob@shop.example")
    strange = CustodialWallets(pool, Sealer([b"\x06" * 32]), ISSUER, SIGNED_HERE)
    with pytest.raises(Misconfigured, match="sealed with master key"):
        await strange.sign_typed_data(ann.wallet, permit_of(ann.wallet))

    await pool.execute(
        "UPDATE custodial_users SET sealed = (SELECT sealed FROM custodial_users WHERE wallet = $1)"
        " WHERE wallet = $2",
        bob.wallet,
        ann.wallet,
    )
    with pytest.raises(Misconfigured, match="changed or moved"):
        await wallets.sign_typed_data(ann.wallet, permit_of(ann.wallet))


def test_new_keys_differ_and_match_their_addresses() -> None:
    made = [local_signing.new_key() for _ in range(20)]

    assert len({secret for secret, _ in made}) == 20
    for secret, wallet in made:
        assert Account.from_key(secret).address == checksummed(wallet)
        assert coincurve.PrivateKey(secret)


async def test_no_log_error_or_repr_holds_a_key_or_a_name(
    wallets: CustodialWallets,
    pool: Pool,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    secrets: list[bytes] = []
    make: Callable[[], tuple[bytes, Address]] = local_signing.new_key

    def overheard() -> tuple[bytes, Address]:
        secret, wallet = make()
        secrets.append(secret)
        return secret, wallet

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(local_signing, "new_key", overheard)
        user = await wallets.wallet_of_email(EMAIL)
        await wallets.wallet_of_account(DISCORD)
        await wallets.link(vouched("hush-sub", DISCORD, email=EMAIL))
    with pytest.raises(ValueError, match=r".") as refusal:
        await wallets.sign_typed_data(user.wallet, permit_of(user.wallet, domain__name=EMAIL))

    output = "".join([repr(refusal.value), *capsys.readouterr(), caplog.text, repr(wallets)])
    assert "custodial_wallets.created" in output
    for secret in (EMAIL, DISCORD.user_id, "hush-sub", *(each.hex() for each in secrets)):
        assert secret not in output


async def test_a_lost_database_makes_wallets_unavailable_and_fails_the_ping(
    database_url: str,
) -> None:
    pool = await open_pool(database_url)
    wallets = CustodialWallets(pool, SEALER, ISSUER, SIGNED_HERE)
    assert await wallets.ping()

    pool.terminate()

    assert not await wallets.ping()
    with pytest.raises(DatabaseUnavailable):
        await wallets.wallet_of_email(EMAIL)
    assert wallets.under_way == 0


def test_the_signed_domain_is_the_contracts_eip712_domain() -> None:
    assert ltz_permits(1, LTZ_AT) == AllowedMessage("Permit", "Loyalty Token", 1, LTZ_AT)
