"""Each wrong setting is refused in one sentence that says what to do, and nothing is changed."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import AsyncMock
from uuid import UUID

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd import __version__
from ltzd.chain.node.client import node_name
from ltzd.chain.signing import Signer
from ltzd.cli.init_files import starting_brand
from ltzd.daemon.checks import database as database_check
from ltzd.daemon.checks import doctor
from ltzd.daemon.settings.settings import read_settings
from ltzd.errors import Misconfigured
from ltzd.rules.checks.findings import Level
from ltzd.rules.conditions.facts import ProcessIdentity, ProcessReport
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.store import database, doctor_facts, processes, schema_revisions
from ltzd.store.doctor_facts import BlockingSession, ServerFacts
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.migrations import known_revisions
from ltzd.values import Address, checksummed, hex_of
from tests.support.chain.compiled_code import code_at
from tests.support.chain.fake_node import ADDRESSES, LTZ_AT, FakeNode
from tests.support.chain.node_fleet import FleetNode, serving
from tests.support.commands import begin_ltzd, ltzd, ltzd_apart
from tests.support.installations import Installation
from tests.support.secret_files import write_secret
from tests.support.services.postgres import Databases
from tests.support.surfaces.event_surface import a_served_node
from tests.support.waiting import until

OTHER_KEY = "12" * 32


@dataclass
class World:
    installation: Installation
    node: FakeNode
    database_url: str
    node_url: str

    async def execute(self, statement: str, *arguments: object, url: str | None = None) -> None:
        connection = await database.connect(url or self.database_url, "test")
        try:
            await connection.execute(statement, *arguments)
        finally:
            await connection.close()

    def set(self, **values: object) -> None:
        self.installation.values.update(values)

    async def faults(self) -> list[str]:
        done = await ltzd("check", "--config", self.installation.write(), "--json")
        findings = json.loads(done.out)["findings"]
        faults = [each["sentence"] for each in findings if each["level"] == "fault"]
        assert done.code == (1 if faults else 0)
        return faults


@pytest_asyncio.fixture
async def world(tmp_path: Path, database_url: str) -> AsyncIterator[World]:
    node = FakeNode()
    for _ in range(20):
        node.mine()
    async with a_served_node(node) as url:
        yield World(Installation.of(tmp_path, database_url, url), node, database_url, url)


async def _other_master_key(world: World) -> None:
    sealer = Sealer([bytes.fromhex(OTHER_KEY)])
    wallet = Address(b"\x05" * 20)
    await world.execute(
        "INSERT INTO custodial_users (subject, wallet, key_id, sealed) VALUES ($1, $2, $3, $4)",
        *("user", wallet, sealer.key_id, sealer.seal_wallet_key(b"\x06" * 32, "user", wallet)),
    )


async def _swapped_contracts(world: World) -> None:
    values = world.installation.values
    world.set(perk_nft=values["points_sale"], points_sale=values["perk_nft"])


async def _another_build(world: World) -> None:
    world.node.codes[LTZ_AT] = world.node.codes[LTZ_AT][:-3] + b"\x00\x01\x02"


async def _another_deployment(world: World) -> None:
    at = ADDRESSES["points_sale"]
    world.node.codes[at] = code_at("PointsSale", Address(b"\x44" * 20))


async def _no_contract(world: World) -> None:
    world.set(business_escrow="0x" + "12" * 20)


async def _no_roles(world: World) -> None:
    world.node.is_minter = False


async def _no_mint_limit(world: World) -> None:
    world.node.mint_capacity = 0


async def _other_chain_id(world: World) -> None:
    world.set(node="chain_id = 137")


async def _slow_clock(world: World) -> None:
    world.node.chain_id = 137
    world.node.block_zero_time = int(time.time()) + 3600


async def _other_first_block(world: World) -> None:
    world.set(first_block=3)
    genesis, base = world.node.blocks[0].hash, world.node.blocks[0].hash
    await world.execute(
        """
        INSERT INTO chains (chain_id, genesis_hash, ltz, first_block,
                            cursor_number, cursor_hash, head_number, final_number)
        VALUES (31337, $1, $2, 1, 0, $3, 0, 0)
        """,
        *(genesis, LTZ_AT, base),
    )


async def _no_database(world: World) -> None:
    world.set(database_url="postgresql://ltzd:hunter2@127.0.0.1:1/ltzd")


async def _unknown_database(world: World) -> None:
    world.set(database_url=world.database_url.rpartition("/")[0] + "/elsewhere")


async def _wrong_password(world: World) -> None:
    user, _, rest = world.database_url.partition("@")
    world.set(database_url=f"{user.rpartition(':')[0]}:hunter2@{rest}")


def _pooled(url: str) -> str:
    return f'pooled_url = "{url}"'


async def _read_only(world: World) -> None:
    name = world.database_url.rpartition("/")[2]
    await world.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")


async def _no_pooler(world: World) -> None:
    world.set(database=_pooled("postgresql://ltzd:hunter2@127.0.0.1:1/ltzd"))


async def _pooler_of_another_database(world: World) -> None:
    world.set(database=_pooled(world.database_url.rpartition("/")[0] + "/postgres"))


async def _pooler_with_a_wrong_password(world: World) -> None:
    user, _, rest = world.database_url.partition("@")
    world.set(database=_pooled(f"{user.rpartition(':')[0]}:hunter2@{rest}"))


async def _replica_that_is_a_primary(world: World) -> None:
    world.set(database=f'replica_url = "{world.database_url}"')


async def _replica_of_another_database(world: World) -> None:
    url = world.database_url.rpartition("/")[0] + "/postgres"
    world.set(database=f'replica_url = "{url}"')


async def _no_node(world: World) -> None:
    world.set(node_urls='["http://127.0.0.1:1"]')


async def _one_key_twice(world: World) -> None:
    write_secret(world.installation.folder / "relay.key", "01" * 32)


async def _sandbox_services(world: World) -> None:
    world.set(issuer="https://127.0.0.1:8700/")


WRONG: dict[str, tuple[Callable[[World], Awaitable[None]], list[str]]] = {
    "master_key": (_other_master_key, ["master_key_file does not decrypt", "old_master_key_files"]),
    "swapped_contracts": (
        _swapped_contracts,
        ["contracts.perk_nft is 0x7272", "which holds PointsSale: give the address of PerkNFT"],
    ),
    "another_build": (_another_build, ["contracts.ltz is 0x1717", "not this version's LTZ"]),
    "another_deployment": (
        _another_deployment,
        ["which holds the PointsSale of another deployment", "one run of `ltzd deploy`"],
    ),
    "no_contract": (_no_contract, ["There is no contract at contracts.business_escrow 0x1212"]),
    "no_roles": (_no_roles, ["lacks LTZ.MINTER", "ltzd wallet grant 0x", "--mint-limit LTZ"]),
    "no_mint_limit": (_no_mint_limit, ["whose mint limit is 0", "ltzd wallet grant 0x"]),
    "chain_id": (_other_chain_id, ["is on chain 31337, but node.chain_id says 137"]),
    "clock": (_slow_clock, ["This machine's clock is 3", "behind the newest block of the node"]),
    "first_block": (
        _other_first_block,
        ["from block 1 on, but contracts.first_block is 3: set contracts.first_block = 1"],
    ),
    "no_database": (
        _no_database,
        ["The database ltzd at 127.0.0.1:1 does not answer: the connection was refused"],
    ),
    "unknown_database": (_unknown_database, ["The database elsewhere at", "CREATE DATABASE"]),
    "wrong_password": (_wrong_password, ["refuses the password of the user ltzd"]),
    "read_only": (
        _read_only,
        ["default_transaction_read_only = on", "ALTER DATABASE … SET", "while a disk is full"],
    ),
    "no_pooler": (
        _no_pooler,
        [
            "The database ltzd at 127.0.0.1:1 does not answer",
            "Start the pooler, in transaction mode",
        ],
    ),
    "pooler_of_another_database": (
        _pooler_of_another_database,
        ["[database] pooled_url leads to the database postgres of", "and database_url to test_"],
    ),
    "pooler_with_a_wrong_password": (
        _pooler_with_a_wrong_password,
        ["refuses the password of the user ltzd", "correct [database] pooled_url"],
    ),
    "replica_that_is_a_primary": (
        _replica_that_is_a_primary,
        ["[database] replica_url leads to a primary: give a standby, or leave it out"],
    ),
    "replica_of_another_database": (
        _replica_of_another_database,
        ["[database] replica_url leads to the database postgres of", "and database_url to test_"],
    ),
    "no_node": (_no_node, ["No node answers and the database is new: 127.0.0.1:1", "refused"]),
    "one_key_twice": (_one_key_twice, ["must not mint"]),
    "sandbox_services": (_sandbox_services, ["identity.issuer must be an https URL of another"]),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_setting_is_refused_with_what_to_do(world: World, name: str) -> None:
    make_wrong, parts = WRONG[name]
    await make_wrong(world)

    faults = await world.faults()

    text = "\n".join(faults)
    assert faults, "nothing was found"
    for part in parts:
        assert part in text
    for leak in ("hunter2", "Error", "Traceback", "Exception"):
        assert leak not in text


async def test_right_settings_have_no_fault(world: World) -> None:
    assert await world.faults() == []


async def test_a_node_that_is_slower_than_the_check_is_not_said_to_be_left_out(
    world: World,
) -> None:
    """The check waits a second for it. A running ltzd uses the node as soon as it answers."""
    await _other_first_block(world)
    slow = FleetNode("slow", mode="hung")
    async with serving(slow):
        world.set(first_block=1, node_urls=json.dumps([slow.url, world.node_url]))
        done = await ltzd("check", "--config", world.installation.write(), "--json")
    sentences = [each["sentence"] for each in json.loads(done.out)["findings"]]
    assert (
        f"The node {node_name(slow.url)} was not checked: the node has not answered yet"
        in sentences
    )


async def test_a_replica_that_is_away_is_a_warning(world: World) -> None:
    world.set(database='replica_url = "postgresql://ltzd:hunter2@127.0.0.1:1/ltzd"')

    done = await ltzd("check", "--config", world.installation.write())

    assert done.code == 0, done.out
    assert "warning replica" in done.out
    assert "the primary is asked in its place" in done.out
    assert "hunter2" not in done.out


async def test_tables_that_the_search_path_hides_are_not_made_a_second_time(world: World) -> None:
    name = world.database_url.rpartition("/")[2]
    await world.execute("CREATE SCHEMA elsewhere")
    await world.execute(f'ALTER DATABASE "{name}" SET search_path = elsewhere')

    (sentence,) = await world.faults()
    assert sentence.startswith(
        "ltzd's tables are in the schema public, which the search_path of its sessions (elsewhere) "
        "does not name: run ALTER ROLE "
    )
    with pytest.raises(Misconfigured, match=re.escape(sentence)):
        await schema_revisions.migrate(world.database_url)

    statement = sentence.partition("run ")[2].partition(";")[0]
    try:
        await world.execute(statement)
        assert await world.faults() == []
    finally:
        user = statement.split()[2]
        await world.execute(f'ALTER ROLE {user} IN DATABASE "{name}" RESET search_path')


async def test_counters_that_a_copy_left_behind_are_a_fault_with_the_sql_that_sets_them(
    world: World,
) -> None:
    """Logical replication copies the rows of tables, and no sequence."""
    await _has_signed(world, wallet_of("01"), wallet_of("02"))
    await world.execute(
        "INSERT INTO brands (id, name, configuration, revision) VALUES ($1, 'Shop', '{}', $2)",
        *(b"\x05" * 20, 7),
    )
    await world.execute("ALTER SEQUENCE transactions_id_seq RESTART")

    (sentence,) = await world.faults()

    assert "transactions_id_seq, brand_revisions" in sentence
    statements = sentence.partition("in psql: ")[2]
    assert statements.count("setval") == 2
    await world.execute(statements)
    assert await world.faults() == []
    await _has_signed(world, wallet_of("03"))


async def test_a_schema_that_may_not_be_made_names_the_sql(
    world: World, databases: Databases
) -> None:
    await world.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    await world.execute("CREATE DATABASE empty TEMPLATE template0")
    address = world.database_url.rpartition("@")[2].rpartition("/")[0]
    world.set(database_url=f"postgresql://guest:guest@{address}/empty")
    try:
        faults = [fault for fault in await world.faults() if "schema" in fault]
        (sentence,) = faults
        statements = sentence.partition("superuser: ")[2]
        assert statements == (
            'GRANT CREATE ON DATABASE "empty" TO "guest"; '
            'GRANT USAGE, CREATE ON SCHEMA "public" TO "guest";'
        )
        await world.execute(statements, url=databases.url_of("empty"))
        assert await world.faults() == []
    finally:
        await world.execute("DROP DATABASE empty WITH (FORCE)")
        await world.execute("DROP OWNED BY guest")
        await world.execute("DROP ROLE guest")


async def test_a_server_that_tells_nothing_of_its_log_stops_no_start(
    world: World, databases: Databases
) -> None:
    """Some managed servers tell it to nobody, others only with `wal_level = logical`."""
    await world.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    await world.execute("CREATE DATABASE managed OWNER guest TEMPLATE template0")
    address = world.database_url.rpartition("@")[2].rpartition("/")[0]
    world.set(database_url=f"postgresql://guest:guest@{address}/managed")
    url = databases.url_of("managed")
    try:
        await world.execute("GRANT CREATE ON SCHEMA public TO guest", url=url)
        for function in ("pg_current_wal_lsn", "pg_current_wal_insert_lsn", "pg_control_system"):
            await world.execute(f"REVOKE EXECUTE ON FUNCTION {function}() FROM PUBLIC", url=url)
        assert await world.faults() == []
    finally:
        await world.execute("DROP DATABASE managed WITH (FORCE)")
        await world.execute("DROP ROLE guest")


async def test_a_database_user_without_privileges_is_told_so_by_every_command(
    world: World,
) -> None:
    """After a restore, for example, the tables may belong to another user."""
    await world.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    at = world.database_url.rpartition("@")[2]
    world.set(database_url=f"postgresql://guest:guest@{at}")
    config = world.installation.write()
    try:
        for command in ("check", "doctor", "status", "migrate", "brand list", "run"):
            begin = ltzd_apart if command == "run" else ltzd
            done = await begin(*command.split(), "--config", config)
            assert done.code == 1, command
            printed = " ".join((done.out + done.err).split())
            assert "The user guest lacks a privilege in the database" in printed, command
            assert "permission denied for table" in printed, command
    finally:
        await world.execute("DROP ROLE guest")


async def test_status_of_a_database_with_an_older_schema_says_what_to_do(world: World) -> None:
    await world.execute("ALTER TABLE leases RENAME COLUMN name TO former_name")

    done = await ltzd("status", "--config", world.installation.write())

    assert done.code == 1
    assert "ltzd migrate --config FILE" in done.err


async def test_a_start_refuses_with_all_faults_at_once_and_changes_nothing(world: World) -> None:
    await _another_build(world)
    await _other_master_key(world)

    done = await ltzd_apart("run", "--config", world.installation.write())

    assert done.code == 1
    assert "ltzd: 2 faults:" in done.err
    assert "contracts.ltz is" in done.err
    assert "master_key_file does not decrypt" in done.err
    connection = await database.connect(world.database_url, "test")
    try:
        assert await connection.fetchval("SELECT count(*) FROM chains") == 0
    finally:
        await connection.close()


OTHER_PERK_NFT = Address(b"\x45" * 20)


async def _has_indexed(world: World, *contracts: Address) -> None:
    await _other_first_block(world)
    world.set(first_block=1)
    await world.execute("UPDATE chains SET contracts = $1", contracts)


async def test_contracts_other_than_those_of_the_index_are_a_fault_of_a_process_without_indexer(
    world: World,
) -> None:
    """Its callers would relay to a contract of which the index knows nothing."""
    addresses = {**ADDRESSES, "perk_nft": OTHER_PERK_NFT}
    await _has_indexed(world, *addresses.values())

    assert await world.faults() == []
    world.set(roles='["http"]')
    [fault] = await world.faults()
    assert (
        f"does not hold the facts of contracts.perk_nft {hex_of(ADDRESSES['perk_nft'])}:" in fault
    )
    assert "start the process with the role indexer first" in fault


async def test_contracts_are_compared_with_the_index_before_an_upgrade_too(world: World) -> None:
    addresses = {**ADDRESSES, "perk_nft": OTHER_PERK_NFT}
    await _has_indexed(world, *addresses.values())
    await world.execute("UPDATE alembic_version SET version_num = $1", known_revisions()[-2])
    world.set(roles='["http"]')

    [fault] = await world.faults()
    assert "does not hold the facts of contracts.perk_nft" in fault


async def test_contracts_for_which_the_index_is_rebuilt_are_no_fault(world: World) -> None:
    addresses = {**ADDRESSES, "perk_nft": OTHER_PERK_NFT}
    await _has_indexed(world, *addresses.values())
    await world.execute(
        "INSERT INTO rebuilds (reason, from_block, contracts) VALUES ('contracts', 0, $1)",
        tuple(ADDRESSES.values()),
    )
    world.set(roles='["http"]')

    assert await world.faults() == []


async def test_a_role_that_a_working_wallet_has_lost_is_a_warning(world: World) -> None:
    """A guardian has revoked it: the rest of ltzd must go on, also after a restart."""
    await _other_first_block(world)
    world.set(first_block=1)
    world.node.is_minter = False
    await _has_signed(world, wallet_of("01"), wallet_of("02"))

    done = await ltzd("check", "--config", world.installation.write())

    assert done.code == 0, done.out
    assert "warning roles" in done.out


@pytest.mark.parametrize("has_worked", [True, False])
async def test_a_retired_wallet_of_the_settings_gets_no_role_back_and_stops_no_start(
    world: World, has_worked: bool
) -> None:
    """The runbook of a stolen key takes the roles first, and the setting out of the file later."""
    world.node.is_minter = False
    await _has_indexed(world, *ADDRESSES.values())
    wallets = [wallet_of("01"), wallet_of("02")]
    await world.execute(
        """
        INSERT INTO operator_wallets (chain_id, wallet, kind, state, reason)
        SELECT 31337, wallet, kind, 'retired', 'stolen'
          FROM unnest($1::bytea[], ARRAY['mint', 'relay']) AS named (wallet, kind)
        """,
        wallets,
    )
    if has_worked:
        await _has_signed(world, *wallets)

    done = await ltzd("check", "--config", world.installation.write())

    assert done.code == 0, done.out
    assert done.out.count("warning wallets") == 2
    for wallet in wallets:
        assert f"names {checksummed(wallet)}, which was retired at " in done.out
    assert "wallet grant" not in done.out


async def _has_signed(world: World, *wallets: Address) -> None:
    await world.execute(
        """
        INSERT INTO transactions (chain_id, wallet, nonce, kind, to_address, data, gas_limit, state)
        SELECT 31337, wallet, 0, 'mint', $2, '', 1, 'signed' FROM unnest($1::bytea[]) AS wallet
        """,
        *(wallets, LTZ_AT),
    )


def wallet_of(byte: str) -> Address:
    return Signer(bytes.fromhex(byte * 32)).address


async def test_a_session_whose_locks_hold_up_ltzd_is_named_with_what_ends_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = BlockingSession(4711, "pg_dump", "backup", 3, "active", 62.0, "COPY events")
    blocking = AsyncMock(return_value=[session, replace(session, state=None, text=None)])
    monkeypatch.setattr(doctor_facts, "blocking_sessions", blocking)

    examination = await database_check.examine(read_settings(world.installation.write()), None, [])

    visible, hidden = [each for each in examination.findings if each.check == "locks"]
    assert visible.level is Level.WARNING
    assert visible.sentence == (
        "Session 4711 of pg_dump, user backup (active for 62 s: COPY events), holds locks for "
        "which 3 of ltzd's sessions wait: wait for its end, or end it, in psql: "
        "SELECT pg_terminate_backend(4711);"
    )
    assert "user backup, holds locks" in hidden.sentence


async def test_the_doctor_looks_at_a_running_system_too(world: World) -> None:
    done = await ltzd("doctor", "--config", world.installation.write(), "--json")

    assert done.code == 0, done.out
    findings = done.json["findings"]
    warned = {each["check"] for each in findings if each["level"] == "warning"}
    assert {"backups", "gas_budgets", "accounts", "processes", "services"} <= warned
    checks = {each["check"] for each in findings}
    assert {"versions", "disk", "statements", "brands", "secret_files", "contracts"} <= checks
    for text in ("Error", "Exception"):
        assert text not in done.out


async def test_the_doctor_tells_what_running_processes_report_and_no_others(
    database_url: str,
) -> None:
    report = ProcessReport((Condition(ConditionKind.REDIS_UNAVAILABLE, "Redis is away"),))
    connection = await database.connect(database_url, "test")
    for pid in (1, 2):
        process = ProcessIdentity(UUID(int=pid), "host", pid, ("http",), __version__)
        await processes.report(connection, process, report)
    aged = "UPDATE processes SET seen_at = seen_at - interval '21 s' WHERE pid = 1"
    await connection.execute(aged)

    findings = await doctor._processes(connection)
    await connection.close()

    sentences = [each.sentence for each in findings if each.check == "processes"]
    assert sentences == ["host/2: Redis is away"]


async def test_the_doctor_goes_on_where_the_databases_folder_cannot_be_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below /var/lib/pgsql, which only its owner may enter."""
    server = ServerFacts(180001, "18.1", 0, data_directory="/" + "x" * 300)
    monkeypatch.setattr(doctor_facts, "server", AsyncMock(return_value=server))

    done = await ltzd("doctor", "--config", world.installation.write(), "--json")

    assert done.code == 0, done.out
    disks = [each for each in done.json["findings"] if each["check"] == "disk"]
    assert len(disks) == 1


async def test_a_signal_ends_the_checks_of_a_start(world: World) -> None:
    world.node.is_hung = True
    process = await begin_ltzd("run", "--config", world.installation.write())
    await until(lambda: _is_asked(world.node), 30)
    process.terminate()

    assert await asyncio.wait_for(process.wait(), 30) == 0


async def _is_asked(node: FakeNode) -> bool:
    return node.hanging > 0


async def test_a_wrong_master_key_seals_no_new_brand(world: World) -> None:
    await _other_master_key(world)
    brand = world.installation.folder / "brand.toml"
    brand.write_text(starting_brand("0x" + "ab" * 20, "Shop", ["shop.example"], 5))

    done = await ltzd("brand", "apply", brand, "--config", world.installation.write())

    assert done.code == 1
    assert "master_key_file does not decrypt" in done.err
    connection = await database.connect(world.database_url, "test")
    try:
        assert await connection.fetchval("SELECT count(*) FROM brands") == 0
    finally:
        await connection.close()
