"""`ltzd user`: one user's data is shown, exported and erased, and the rest stays."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from ltzd.actions.users.custodial_wallets import CustodialWallets
from ltzd.providers.oidc.claims import OidcUser
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection, open_pool
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.values import checksummed
from tests.support.commands import Outcome, ltzd
from tests.support.rows.core import BRAND, a_wallet
from tests.support.rows.everywhere import places_of
from tests.support.surfaces.event_action import a_brand

ANN, BOB = "ann.lee@shop.example", "bob@shop.example"
WALLET, FORMER = a_wallet(1), a_wallet(9)


class User:
    """`ltzd user …` beside the instance of `data_dir`."""

    def __init__(self, data_dir: Path) -> None:
        self._where = ("--data-dir", data_dir)

    async def __call__(self, *arguments: object) -> Outcome:
        return await ltzd("user", *arguments, *self._where)


@pytest.fixture
def user(data_dir: Path) -> User:
    return User(data_dir)


async def a_user(db: Connection, email: str, number: int) -> UUID:
    """With an event, a claim, a membership linked to another user's wallet, and an account."""
    id_, wallet = uuid4(), a_wallet(number)
    await db.execute(
        "INSERT INTO users (id, email_key, identity_subject, wallet) VALUES ($1, $2, $3, $4)",
        *(id_, email, f"did:{number}", wallet),
    )
    await db.execute("INSERT INTO former_wallets (wallet, user_id) VALUES ($1, $2)", FORMER, id_)
    await db.execute(
        """
        INSERT INTO events (id, brand_id, event_type, email, user_id, domain, user_identifier,
                            metadata, ltz)
        VALUES (gen_random_uuid(), $1, 'x', $2, $3, 'shop.example', $2, $4, 5)
        """,
        *(BRAND, email, id_, {"mail": email}),
    )
    await db.execute("INSERT INTO event_claims VALUES ($1, 'x', $2, 1)", BRAND, email)
    link = uuid4()
    await db.execute(
        """
        INSERT INTO site_links (id, brand_id, host, site_user_id, user_id, subject, wallet,
                                daily_allowance, expires_at)
        VALUES ($1, $2, 'h', $3, $4, $5, $6, 5, now() + interval '1 day')
        """,
        *(link, BRAND, number, id_, f"did:{number}", wallet),
    )
    await db.execute(
        """
        INSERT INTO site_members (brand_id, host, site_user_id, username, email_key, user_id,
                                  wallet, link_id)
        VALUES ($1, 'h', $2, $3, $3, $4, $5, $6)
        """,
        *(BRAND, number, email, id_, a_wallet(77), link),
    )
    await db.execute(
        "INSERT INTO pregenerations VALUES ('google', $1, 'did:x', $2, $3)",
        *(str(number), wallet, email),
    )
    await db.execute(
        """
        INSERT INTO pregeneration_requests
               (brand_id, oauth_provider, oauth_user_id, created_new, metadata)
        VALUES ($1, 'google', $2, true, $3)
        """,
        *(BRAND, str(number), {"email": email}),
    )
    return id_


async def places(database_url: str, text: str) -> set[str]:
    pool = await open_pool(database_url)
    try:
        return await places_of(pool, text)
    finally:
        pool.terminate()


async def test_a_user_is_found_by_address_id_and_wallet_and_shown_without_the_address(
    db: Connection, user: User
) -> None:
    id_ = await a_user(db, ANN, 1)
    for name in (ANN, ANN.upper(), id_, checksummed(WALLET), checksummed(FORMER)):
        shown = await user("show", name, "--json")
        assert shown.json["userId"] == str(id_)
        assert shown.json["wallets"] == [checksummed(WALLET), checksummed(FORMER)]
        assert shown.json["rows"]["events"] == 1
        assert "ann" not in shown.out.lower()
    page = await user("show", ANN)
    assert "stored" in page.out
    assert ANN not in page.out


@pytest.mark.parametrize("name", ["nobody@shop.example", str(UUID(int=1)), "0x12", "ann"])
async def test_an_unknown_user_is_refused_in_one_sentence(user: User, name: str) -> None:
    outcome = await user("show", name)
    assert outcome.code == 1
    assert name in outcome.err
    assert "Traceback" not in outcome.err


async def test_a_wallet_of_several_users_names_them(db: Connection, user: User) -> None:
    ids = {await a_user(db, ANN, 1), await a_user(db, BOB, 2)}
    outcome = await user("show", checksummed(FORMER))
    assert outcome.code == 1
    assert all(str(id_) in outcome.err for id_ in ids)


async def test_an_export_has_every_row_about_the_user_and_none_about_another(
    db: Connection, user: User
) -> None:
    await a_user(db, ANN, 1)
    await a_user(db, BOB, 2)
    for number in (1, 2):
        await db.execute(
            "INSERT INTO gas_spent (day, identity, slot, wei) VALUES ('2026-01-01', $1, 0, $2)",
            *(f"did:{number}", number),
        )
        await db.execute(
            "INSERT INTO milestone_claims (brand_id, wallet, days, ltz, reward_id) "
            "VALUES ($1, $2, 7, $3, gen_random_uuid())",
            *(BRAND, a_wallet(number), number),
        )
    exported: Any = (await user("export", ANN)).json
    tables = exported["tables"]
    assert [row["ltz"] for row in tables["milestone_claims"]] == [1]
    assert [row["wei"] for row in tables["gas_spent"]] == ["1"]
    assert tables["users"][0]["email_key"] == ANN
    assert tables["events"][0]["metadata"] == {"mail": ANN}
    assert tables["site_members"][0]["username"] == ANN
    assert tables["pregeneration_requests"][0]["metadata"] == {"email": ANN}
    assert BOB not in str(exported)


async def test_an_erasure_leaves_no_address_and_no_other_user_changes(
    db: Connection, user: User, database_url: str
) -> None:
    id_ = await a_user(db, ANN, 1)
    await a_user(db, BOB, 2)
    before = await places(database_url, BOB)
    assert await places(database_url, ANN) == before

    done = await user("erase", ANN, "--yes", "--json")

    assert done.json["erased"] == {
        "address": 1,
        "claims": 1,
        "proofs of the address": 0,
        "custodial accounts": 0,
        "links given to sites": 1,
        "account names": 2,
        "memberships at sites": 1,
        "events": 1,
    }
    assert await places(database_url, ANN) == set()
    assert await places(database_url, BOB) == before
    assert (await user("show", ANN, "--json")).json["addressErased"]
    assert [row["userId"] for row in (await user("erasures", "--json")).json] == [str(id_)]
    member = await db.fetchrow("SELECT * FROM site_members WHERE user_id = $1", id_)
    assert (member["username"], member["link_id"], member["wallet"]) == ("erased", None, WALLET)


@pytest.mark.parametrize("has_user", [True, False])
async def test_links_of_the_owner_of_a_custodial_wallet_are_exported_and_ended(
    db: Connection, user: User, data_dir: Path, database_url: str, *, has_user: bool
) -> None:
    """Links name the owner as the issuer's tokens do, and a custodial user as ltzd does."""
    pool = await open_pool(database_url)
    sealer = Sealer.from_file(data_dir / "master.key", create=True)
    wallets = CustodialWallets(pool, sealer, "https://login.example/", ())
    given = await wallets.wallet_of_email(ANN)
    await wallets.link(OidcUser("ann 7", None, (), ANN))
    await wallets.link(OidcUser("bob 8", None, (), BOB))
    pool.terminate()
    if has_user:
        await db.execute(
            "INSERT INTO users (id, email_key, identity_subject, wallet) VALUES ($1, $2, $3, $4)",
            *(uuid4(), ANN, given.subject, given.wallet),
        )
    await a_user(db, "cid@shop.example", 3)
    await a_user(db, "dan@shop.example", 4)
    for number, subject in ((3, "ann 7"), (4, "bob 8")):
        await db.execute(
            "UPDATE site_links SET subject = $2 WHERE site_user_id = $1", number, subject
        )
        await db.execute(
            """
            INSERT INTO site_link_codes (code_hash, brand_id, host, subject, wallets,
                                         daily_allowance, expires_at)
            VALUES (sha256($2::text::bytea), $1, 'h', $2, ARRAY[$3::bytea], 5,
                    now() + interval '1 minute')
            """,
            *(BRAND, subject, given.wallet),
        )
    exported: Any = (await user("export", ANN)).json
    assert [row["site_user_id"] for row in exported["tables"]["site_links"]] == [3]

    done = await user("erase", ANN, "--yes", "--json")

    assert done.json["erased"]["links given to sites"] == 1
    assert await db.fetchval("SELECT array_agg(subject) FROM site_link_codes") == ["bob 8"]
    linked = "SELECT array_agg(site_user_id) FROM site_members WHERE link_id IS NOT NULL"
    assert await db.fetchval(linked) == [4]


async def test_a_proven_address_without_a_user_is_shown_exported_and_erased(
    db: Connection, user: User, database_url: str
) -> None:
    await db.execute("INSERT INTO address_proofs (email_key, person) VALUES ($1, 'did:1')", ANN)
    shown = await user("show", ANN)
    assert "an address that a token has proven" in shown.out
    assert (await user("show", ANN, "--json")).json["wallets"] == []
    exported: Any = (await user("export", ANN)).json
    assert exported["tables"]["address_proofs"][0]["person"] == "did:1"
    assert "did:1" in (await user("erase", ANN)).err, "the question names the person"

    done = await user("erase", ANN, "--yes", "--json")

    assert done.json["erased"]["proofs of the address"] == 1
    assert await places(database_url, ANN) == set()


async def test_an_erasure_leaves_the_user_proven(
    db: Connection, user: User, database_url: str
) -> None:
    id_ = await a_user(db, ANN, 1)
    await db.execute("INSERT INTO address_proofs (email_key, person) VALUES ($1, 'did:1')", ANN)

    assert (await user("erase", ANN, "--yes")).code == 0

    assert await places(database_url, ANN) == set()
    assert await db.fetchval("SELECT proven_by FROM users WHERE id = $1", id_) == "did:1"


async def test_an_erasure_may_be_repeated_and_says_what_stays(db: Connection, user: User) -> None:
    id_ = await a_user(db, ANN, 1)
    await user("erase", id_, "--yes")
    again = await user("erase", ANN, "--yes")
    assert again.code == 0
    assert "on the chain" in again.err
    assert "events: 0" in again.out


async def test_another_master_key_than_the_daemons_erases_nothing(
    db: Connection, user: User, data_dir: Path
) -> None:
    """The first erasure seals a secret; sealed with another key, the daemon could not open it."""
    await a_user(db, ANN, 1)
    right = Sealer.from_file(data_dir / "master.key")
    await brands.apply(db, a_brand(), right)
    (data_dir / "master.key").unlink()
    Sealer.from_file(data_dir / "master.key", create=True)
    done = await user("erase", ANN, "--yes")
    assert done.code == 1
    assert "does not decrypt this database's rows" in done.err
    daemon = ErasedAddresses(right)
    assert await daemon.find_user(db, BOB) is None
    assert await daemon.find_user(db, ANN) is not None


async def test_an_erased_user_who_has_logged_in_at_a_site_again_is_erased_again(
    db: Connection, user: User, database_url: str
) -> None:
    """The log-in stores the address and the name with the member alone."""
    id_ = await a_user(db, ANN, 1)
    await user("erase", ANN, "--yes")
    await db.execute(
        "UPDATE site_members SET email_key = $2, username = $2 WHERE user_id = $1", id_, ANN
    )
    assert await places(database_url, ANN) != set()

    assert (await user("erase", ANN, "--yes")).code == 0

    assert await places(database_url, ANN) == set()


async def test_without_a_yes_nothing_is_erased(
    db: Connection, user: User, database_url: str
) -> None:
    await a_user(db, ANN, 1)
    refused = await user("erase", ANN)
    assert refused.code == 1
    assert refused.err.endswith("so give --yes to confirm. Nothing changed.\n")
    assert "users.email_key" in await places(database_url, ANN)
