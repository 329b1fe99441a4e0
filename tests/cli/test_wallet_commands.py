"""`ltzd wallets` completes a rotation of the master key after any interruption, and hides names."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple
from pathlib import Path

import pytest
import pytest_asyncio

from ltzd.actions.users.custodial_signing import new_key
from ltzd.errors import Misconfigured
from ltzd.rules.brands.configuration import Brand
from ltzd.store import database
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.keys import NewKeys
from ltzd.store.database import Connection
from ltzd.store.encryption import rotation as master_key_rotation
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.users import custodial_users
from ltzd.store.users.custodial_users import AccountName, SealedUser
from ltzd.values import checksummed
from tests.support.commands import begin_ltzd, ltzd
from tests.support.secret_files import write_secret
from tests.support.waiting import until

BRAND = Brand(id="0x" + "aa" * 20, name="Demo", domains=("shop.example",))
OTHER = Brand(id="0x" + "bb" * 20, name="Other", domains=("other.example",))
USERS = 1003
TABLES = ("brand_secrets", "retired_secrets", "custodial_users")
SETTINGS = """\
database_url = "{url}"
master_key_file = "{new}"
old_master_key_files = ["{old}"]
roles = ["http"]
[node]
rpc_url = "https://node.example"
[contracts]
ltz = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
perk_nft = "0xe7f1725e7734ce288f8367e1bb143e90bb3f0512"
points_sale = "0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0"
business_escrow = "0xcf7ed3acca5a467e9e704c703e8d87f634fb0fc9"
first_block = 0
[identity]
kind = "oidc"
issuer = "https://login.example/"
audience = "ltzd"
"""


class Keys:
    """The old master key that seals all rows, and a new one."""

    def __init__(self, folder: Path) -> None:
        self.old_file, self.new_file = folder / "master.key", folder / "new.key"
        self.old = Sealer.from_file(self.old_file)
        self.new = Sealer.from_file(self.new_file, create=True)
        self.both = Sealer.from_file(self.old_file, self.new_file)


@pytest.fixture
def keys(data_dir: Path) -> Keys:
    return Keys(data_dir)


@pytest.fixture
def config(tmp_path: Path, database_url: str, keys: Keys) -> Path:
    path = tmp_path / "ltzd.toml"
    write_secret(
        path,
        SETTINGS.replace("{url}", database_url)
        .replace("{new}", str(keys.new_file))
        .replace("{old}", str(keys.old_file)),
    )
    return path


@pytest_asyncio.fixture
async def shown(db: Connection, keys: Keys) -> list[NewKeys]:
    """Two brands, with retired keys, and USERS users, all sealed with the old master key."""
    applied = [await brands.apply(db, brand, keys.old) for brand in (BRAND, OTHER)]
    await brand_keys.rotate(db, BRAND.address, "security_key", keys.old, revoke=False)
    await brand_keys.rotate(db, BRAND.address, "security_key", keys.old, revoke=False)
    await brand_keys.rotate(db, OTHER.address, "api_key", keys.old, revoke=False)
    await bring(db, USERS, keys.old)
    return [each.keys for each in applied if each.keys is not None]


def a_user(number: int, sealer: Sealer) -> SealedUser:
    secret, wallet = new_key()
    subject = f"ltzd:{number:04}"
    sealed = sealer.seal_wallet_key(secret, subject, wallet)
    return SealedUser(subject, wallet, sealer.key_id, sealed)


async def bring(db: Connection, users: int, sealer: Sealer) -> None:
    rows = [astuple(a_user(number, sealer)) for number in range(users)]
    columns = ("subject", "wallet", "key_id", "sealed")
    await db.copy_records_to_table("custodial_users", records=rows, columns=columns)


async def key_ids(db: Connection, table: str) -> dict[str, int]:
    rows = await db.fetch(
        f"SELECT key_id, count(*) FROM {table} WHERE key_id IS NOT NULL GROUP BY key_id"
    )
    return {row[0]: row[1] for row in rows}


async def contents(db: Connection, sealer: Sealer) -> list[object]:
    """All sealed values, decrypted. Raises Misconfigured if one cannot be opened."""
    users = await db.fetch("SELECT * FROM custodial_users ORDER BY subject")
    values: list[object] = [
        sealer.open_wallet_key(row["sealed"], row["key_id"], row["subject"], row["wallet"])
        for row in users
    ]
    for brand in (BRAND, OTHER):
        for name in ("security_key", "webhook_secret", "verification_token"):
            secrets = await brand_keys.secrets_of(db, brand.address, name, sealer)
            values += [(each.text, each.until) for each in secrets]
    return values


def rotation(config: Path, keys: Keys) -> tuple[object, ...]:
    return "wallets", "rotate-master-key", "--config", config, "--new-key-file", keys.new_file


# --- the whole of it ----------------------------------------------------------------------------


@pytest.mark.usefixtures("shown")
async def test_everything_is_sealed_anew_and_says_the_same(
    db: Connection, config: Path, keys: Keys
) -> None:
    before = await contents(db, keys.old)
    hashes = await db.fetch("SELECT * FROM brand_secrets WHERE key_id IS NULL ORDER BY brand_id")

    done = await ltzd(*rotation(config, keys))

    assert (done.code, done.out.splitlines()) == (
        0,
        [
            "brand_secrets: 6 sealed rows, 6 of them sealed again",
            "retired_secrets: 2 sealed rows, 2 of them sealed again",
            f"custodial_users: {USERS} sealed rows, {USERS} of them sealed again",
            "erasure_keys: 0 sealed rows, 0 of them sealed again",
        ],
    )
    assert f"can be opened with master key {keys.new.key_id} alone" in done.err
    assert await contents(db, keys.new) == before
    assert hashes == await db.fetch(
        "SELECT * FROM brand_secrets WHERE key_id IS NULL ORDER BY brand_id"
    )
    for table in TABLES:
        assert list(await key_ids(db, table)) == [keys.new.key_id]


@pytest.mark.usefixtures("shown")
async def test_a_second_rotation_changes_nothing(db: Connection, config: Path, keys: Keys) -> None:
    await ltzd(*rotation(config, keys))
    rows = await db.fetch("SELECT sealed FROM custodial_users ORDER BY subject")

    again = await ltzd(*rotation(config, keys))

    assert again.code == 0
    assert f"custodial_users: {USERS} sealed rows, 0 of them sealed again" in again.out
    assert rows == await db.fetch("SELECT sealed FROM custodial_users ORDER BY subject")


async def test_an_empty_database_is_rotated_at_once(config: Path, keys: Keys) -> None:
    done = await ltzd(*rotation(config, keys))

    assert (done.code, done.out.count("0 sealed rows, 0 of them sealed again")) == (0, 4)


# --- killed half-way ----------------------------------------------------------------------------

HALF_WAY = {
    "custodial_users": "SELECT FROM custodial_users "
    f"WHERE subject = 'ltzd:{USERS - 1:04}' FOR UPDATE",
    "retired_secrets": "SELECT FROM retired_secrets WHERE key_id IS NOT NULL FOR UPDATE",
    "brand_secrets": "SELECT FROM brand_secrets WHERE brand_id = '\\xbb"
    + "bb" * 19
    + "' AND name = 'webhook_secret' FOR UPDATE",
}
"""By table, a query that locks a row, so that a rotation stops there."""


@asynccontextmanager
async def held(database_url: str, statement: str) -> AsyncIterator[None]:
    connection = await database.connect(database_url, "holds a row")
    try:
        async with connection.transaction():
            assert await connection.fetch(statement)
            yield
    finally:
        await connection.close()


async def waits_for_a_row(db: Connection) -> bool:
    return bool(
        await db.fetchval(
            """
            SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name LIKE '%rotate-master-key'
               AND wait_event_type = 'Lock'
            """
        )
    )


async def has_gone(db: Connection) -> bool:
    return not await db.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE '%rotate-master-key'"
    )


@pytest.mark.usefixtures("shown")
async def test_a_rotation_that_is_killed_half_way_is_finished_by_the_next(
    db: Connection, database_url: str, config: Path, keys: Keys
) -> None:
    before = await contents(db, keys.old)
    async with held(database_url, HALF_WAY["custodial_users"]):
        process = await begin_ltzd(*rotation(config, keys))
        await until(lambda: waits_for_a_row(db))
        process.send_signal(signal.SIGKILL)
        await process.communicate()
    await until(lambda: has_gone(db))

    assert await key_ids(db, "custodial_users") == {keys.new.key_id: 1000, keys.old.key_id: 3}
    assert await contents(db, keys.both) == before, "both keys open all of it"

    again = await ltzd(*rotation(config, keys))

    assert again.code == 0, again.err
    assert "custodial_users: 1003 sealed rows, 3 of them sealed again" in again.out
    assert await contents(db, keys.new) == before


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.usefixtures("shown")
async def test_a_rotation_that_loses_the_database_is_told_and_finished_by_the_next(
    table: str, db: Connection, database_url: str, config: Path, keys: Keys
) -> None:
    before = await contents(db, keys.old)
    async with held(database_url, HALF_WAY[table]):
        rotating = asyncio.create_task(ltzd(*rotation(config, keys)))
        await until(lambda: waits_for_a_row(db))
        await db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE '%rotate-master-key'"
        )
        done = await rotating
    assert (done.code, "The database broke the command off" in done.err) == (1, True), done.err
    left = [list(await key_ids(db, each)) for each in TABLES[TABLES.index(table) + 1 :]]
    assert left == [[keys.old.key_id]] * len(left)
    assert await contents(db, keys.both) == before

    assert (await ltzd(*rotation(config, keys))).code == 0
    assert await contents(db, keys.new) == before


@pytest.mark.usefixtures("shown")
async def test_brands_and_users_that_come_meanwhile_are_sealed_anew_too(
    db: Connection, database_url: str, config: Path, keys: Keys
) -> None:
    """Rows are written by a process that still seals with the old key."""
    async with held(database_url, HALF_WAY["custodial_users"]):
        rotating = asyncio.create_task(ltzd(*rotation(config, keys)))
        await until(lambda: waits_for_a_row(db))
        secret, wallet = new_key()
        sealed = keys.old.seal_wallet_key(secret, "ltzd:!", wallet)
        newcomer = SealedUser("ltzd:!", wallet, keys.old.key_id, sealed)
        assert await custodial_users.create(db, AccountName("email", "late@shop.example"), newcomer)
    done = await rotating

    assert done.code == 0, done.err
    assert f"custodial_users: {USERS + 1} sealed rows, {USERS + 1} of them sealed again" in done.out
    assert secret in await contents(db, keys.new)


@pytest.mark.usefixtures("shown")
async def test_a_brands_key_that_is_rotated_meanwhile_stays_the_new_one(
    db: Connection, database_url: str, config: Path, keys: Keys
) -> None:
    connection = await database.connect(database_url, "another")
    try:
        rotating = asyncio.create_task(ltzd(*rotation(config, keys)))
        news = [
            await brand_keys.rotate(
                connection, OTHER.address, "webhook_secret", keys.both, revoke=True
            )
            for _ in range(5)
        ]
        assert (await rotating).code == 0
    finally:
        await connection.close()

    secrets = await brand_keys.secrets_of(db, OTHER.address, "webhook_secret", keys.both)
    assert [each.text for each in secrets] == [news[-1].key]


# --- what is wrong ------------------------------------------------------------------------------


@pytest.mark.usefixtures("shown")
async def test_a_key_that_no_process_knows_seals_nothing(
    db: Connection, config: Path, data_dir: Path, tmp_path: Path, keys: Keys
) -> None:
    strange = tmp_path / "strange.key"
    Sealer.from_file(strange, create=True)
    for place in (("--config", config), ("--data-dir", data_dir)):
        done = await ltzd("wallets", "rotate-master-key", *place, "--new-key-file", strange)
        assert done.code == 1
        assert "The settings do not name" in done.err or "first line of" in done.err
    assert list(await key_ids(db, "custodial_users")) == [keys.old.key_id]

    missing = await ltzd(*rotation(config, keys)[:-1], tmp_path / "none")
    assert (missing.code, "cannot be read" in missing.err) == (1, True)


@pytest.mark.usefixtures("shown")
async def test_rows_that_do_not_open_are_named_and_the_rest_is_done(
    db: Connection, config: Path, keys: Keys
) -> None:
    await db.execute("UPDATE custodial_users SET sealed = 'x' WHERE subject = 'ltzd:0007'")
    await db.execute("UPDATE custodial_users SET key_id = 'lost' WHERE subject = 'ltzd:0008'")
    harmed = await db.fetch(
        "SELECT wallet FROM custodial_users WHERE subject IN ('ltzd:0007', 'ltzd:0008')"
    )

    done = await ltzd(*rotation(config, keys))

    assert done.code == 1
    assert f"custodial_users: {USERS} sealed rows, {USERS - 2} of them sealed again" in done.out
    assert "keep the old key" in done.err
    assert "alone" not in done.err
    for row in harmed:
        assert row["wallet"].hex() in done.err
    assert "sealed with master key lost" in done.err
    assert "changed or moved in the database" in done.err


@pytest.mark.usefixtures("shown")
async def test_a_row_that_says_the_new_key_and_lies_is_found(
    db: Connection, config: Path, keys: Keys
) -> None:
    await db.execute(
        "UPDATE custodial_users SET key_id = $1 WHERE subject = 'ltzd:0007'", keys.new.key_id
    )

    done = await ltzd(*rotation(config, keys))

    assert (done.code, "changed or moved" in done.err) == (1, True)


async def test_who_goes_on_sealing_with_another_key_is_told_of(
    db: Connection, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bring(db, 3, keys.old)
    walk = master_key_rotation._walk

    async def undone(connection: Connection, table: object, sealer: Sealer) -> object:
        count = await walk(connection, table, sealer)  # type: ignore[arg-type]
        await connection.execute("DELETE FROM custodial_users")
        await bring(connection, 3, keys.old)
        return count

    monkeypatch.setattr(master_key_rotation, "_walk", undone)
    with pytest.raises(Misconfigured, match="still being sealed with another key"):
        await master_key_rotation.rotate(db, keys.both.sealing_with(keys.new.key_id))


# --- a dev instance -----------------------------------------------------------------------------


@pytest.mark.usefixtures("shown")
async def test_a_dev_instance_is_rotated_to_the_first_line_of_its_key_file(
    db: Connection, data_dir: Path, keys: Keys
) -> None:
    before = await contents(db, keys.old)
    lines = keys.new_file.read_text() + keys.old_file.read_text()
    keys.old_file.write_text(lines)

    done = await ltzd(
        *("wallets", "rotate-master-key", "--data-dir", data_dir),
        *("--new-key-file", keys.new_file),
    )

    assert done.code == 0, done.err
    assert "The other lines of" in done.err
    assert await contents(db, keys.new) == before


def swap(file: Path, first: str, second: str) -> None:
    text = file.read_text()
    file.write_text(text.replace(first, "@@").replace(second, first).replace("@@", second))


@pytest.mark.usefixtures("shown")
async def test_who_still_seals_with_the_old_key_hears_what_comes_next(
    config: Path, keys: Keys
) -> None:
    swap(config, str(keys.old_file), str(keys.new_file))

    done = await ltzd(*rotation(config, keys))

    assert done.code == 0
    assert "Now make the new file master_key_file everywhere" in done.err


@pytest.mark.usefixtures("shown")
async def test_other_commands_open_what_an_old_key_sealed(config: Path) -> None:
    done = await ltzd("brand", "show", BRAND.id, "--config", config, "--json")

    assert done.json["keys"].keys() == {
        "securityKey",
        "apiKey",
        "webhookSecret",
        "verificationToken",
    }


# --- the list -----------------------------------------------------------------------------------

SECRETS = ("ann@shop.example", "308994132968210433", "user-7")


@pytest_asyncio.fixture
async def listed(db: Connection, keys: Keys) -> list[str]:
    """The wallets of an event's user who has logged in since, and of an account."""
    rows = [a_user(number, keys.old) for number in range(3)]
    email, login = (
        AccountName("email", "ann@shop.example"),
        AccountName("subject", "https://x.example user-7"),
    )
    await custodial_users.create(db, email, rows[0])
    await custodial_users.create_person(db, login, rows[1])
    await custodial_users.set_owner(db, rows[0].subject, rows[1].subject, email)
    await custodial_users.create(db, AccountName("discord", "308994132968210433"), rows[2])
    return [checksummed(row.wallet) for row in rows]


async def test_the_list_tells_wallets_and_kinds_but_no_names(
    data_dir: Path, listed: list[str]
) -> None:
    for form in ((), ("--json",)):
        done = await ltzd("wallets", "list", "--data-dir", data_dir, *form)

        assert done.code == 0
        assert [wallet for wallet in listed if wallet not in done.out] == []
        assert [name for name in SECRETS if name in done.out + done.err] == []
    rows = {row["wallet"]: row for row in done.json}
    assert [rows[wallet]["accounts"] for wallet in listed] == [
        [{"kind": "email", "verified": True}],
        [{"kind": "subject", "verified": True}],
        [{"kind": "discord", "verified": False}],
    ]
    assert [rows[wallet]["owner"] for wallet in listed] == ["ltzd:0001", "ltzd:0001", None]
    assert rows[listed[0]].keys() == {
        *("subject", "wallet", "owner", "masterKey", "createdAt", "accounts")
    }


@pytest.mark.usefixtures("listed")
async def test_names_are_shown_to_who_asks_for_them(data_dir: Path) -> None:
    for form in ((), ("--json",)):
        done = await ltzd("wallets", "list", "--data-dir", data_dir, "--show-names", *form)

        assert [name for name in SECRETS if name not in done.out] == []


async def test_a_short_list_says_how_many_there_are(data_dir: Path, listed: list[str]) -> None:
    done = await ltzd("wallets", "list", "--data-dir", data_dir, "--limit", 2, "--json")

    assert len(done.json) == 2
    assert "the newest 2 of 3" in done.err
    assert len(listed) == 3


async def test_an_empty_list_says_so(data_dir: Path) -> None:
    done = await ltzd("wallets", "list", "--data-dir", data_dir)
    assert (done.code, done.out) == (0, "")
    assert "There is no custodial wallet" in done.err
    assert (await ltzd("wallets", "list", "--data-dir", data_dir, "--json")).json == []
