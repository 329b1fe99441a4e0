"""PostgreSQL fails over to a replica that lacks the last commits: nothing is minted twice."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from ltzd.dev.services import postgres
from ltzd.operator.policy import COMPARING
from ltzd.store.database import open_pool, session
from ltzd.store.operator import restore
from ltzd.store.schema_revisions import migrate
from ltzd.values import hex_of
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, OTHERS_AT, FakeNode
from tests.support.chain.mint_world import World, true
from tests.support.commands import a_data_directory_of, ltzd
from tests.support.folders import a_data_directory
from tests.support.rows.books import reconcile
from tests.support.rows.core import running, value
from tests.support.secret_files import write_secret
from tests.support.services.replicas import a_copy
from tests.support.surfaces.event_surface import a_served_node
from tests.support.waiting import until


@pytest.fixture
def node() -> FakeNode:
    node = FakeNode()
    node.mine()
    node.final_depth = 3
    return node


@asynccontextmanager
async def a_world(url: str, node: FakeNode) -> AsyncIterator[World]:
    pool = await open_pool(url)
    world = World(url, pool, pool, node)
    async with running((await world.follow()).run()):
        yield world
    pool.terminate()


async def reward_ids(world: World) -> list[UUID]:
    async with session(world.observer) as connection:
        return [row["id"] for row in await connection.fetch("SELECT id FROM rewards")]


async def history(world: World) -> str:
    async with session(world.observer) as connection:
        return await restore.database_history(connection)


async def open_differences(world: World) -> dict[str, int]:
    """The books' disagreements, without that of a test's rewards, which have no events."""
    async with session(world.observer) as connection:
        differences = await reconcile(connection, 20)
    counts = {each.kind: each.count for each in differences}
    assert counts.pop("reward_without_event") > 0
    return counts


async def files_of(folder: Path, world: World, node_url: str) -> Path:
    """The files of a dev instance, by which commands find the database and the node."""
    data_dir = a_data_directory_of(folder / "files", world.url)
    content = json.loads((data_dir / "dev.json").read_text())
    names = ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow")
    addresses = dict(zip(names, map(hex_of, (LTZ_AT, *OTHERS_AT)), strict=True))
    write_secret(
        data_dir / "dev.json",
        json.dumps(content | {"rpcUrl": node_url, "chainId": CHAIN_ID, "contracts": addresses}),
    )
    return data_dir


async def test_a_replica_without_the_last_commits_mints_nothing_twice(
    node: FakeNode, tmp_path: Path
) -> None:
    async with a_data_directory() as first_folder, a_data_directory() as second_folder:
        first = await postgres.start(first_folder, postgres.UNSAFE_BUT_FAST)
        await migrate(first.url)
        node.mines_at_once = True
        async with a_world(first.url, node) as primary:
            await primary.queue(10)
            async with primary.serving():
                await primary.minted()
            known = set(await primary.queue(8)) | set(await reward_ids(primary))
            replica = await a_copy(first_folder, first.url, second_folder)
            before = await history(primary)

            # From here on all commits are lost: mined ones, pending ones, and three new rewards.
            async with primary.serving():
                await primary.minted()
                lost = await primary.queue(3)
                await primary.minted()
                node.mines_at_once = False
                lost += await primary.queue(2)
                await until(lambda: true(bool(node.pool)))
        await postgres.stop(first_folder)

        async with a_world(await replica.promote(), node) as promoted:
            assert await history(promoted) != before
            assert set(await reward_ids(promoted)) == known
            async with a_served_node(node) as node_url, promoted.lane() as lane:
                await until(lambda: true(lane.stopped is not None), 30.0)
                reason = str(lane.stopped)
                assert "`ltzd restore check`" in reason
                data_dir = await files_of(tmp_path, promoted, node_url)
                check = await ltzd("restore", "check", "--data-dir", data_dir)
                assert check.code == 1
                assert "commits are lost, or something else signs" in check.out
                assert "To do: `ltzd restore apply --" in check.out

                arrived = len(node.arrived)
                done = await ltzd("restore", "apply", "--data-dir", data_dir)
                assert done.code == 0, done.err
                assert "continues at nonce 4; it was at 1." in done.out
            known |= set(await promoted.queue(4))
            async with promoted.lane() as lane:
                await until(lambda: true(lane.pause.reason == COMPARING), 30.0)
                await promoted.some_polls()
                # Only what was known may be sent again while a lost transaction is still pending.
                assert set(node.arrived[arrived:]) <= set(node.arrived[:arrived])
                node.mines_at_once = True
                node.mine()
                await promoted.minted()
                node.mine(6)
                await until(lambda: is_final(promoted), 30.0)
            minted = Counter(UUID(bytes=each[:16]) for each in node.minted().elements())
            assert minted == Counter(known | set(lost))
            assert await open_differences(promoted) == {"foreign_mint": len(lost)}
            await acknowledge(data_dir)
            assert await open_differences(promoted) == {}


async def acknowledge(data_dir: Path) -> None:
    reason = "lost in the failover; the brands are informed"
    arguments = ("foreign_mint", "--all", "--reason", reason, "--data-dir", data_dir)
    done = await ltzd("books", "acknowledge", *arguments)
    assert done.code == 0, done.err


async def is_final(world: World) -> bool:
    return bool(
        await value(
            world.observer,
            "SELECT NOT EXISTS (SELECT FROM transactions WHERE state <> 'confirmed')",
        )
    )


async def test_a_replica_that_lost_nothing_needs_no_person(node: FakeNode) -> None:
    """A restart of the same server is no promotion: its lanes sign at once."""
    async with a_data_directory() as first_folder, a_data_directory() as second_folder:
        first = await postgres.start(first_folder, postgres.UNSAFE_BUT_FAST)
        await migrate(first.url)
        node.mines_at_once = True
        async with a_world(first.url, node) as primary:
            await primary.queue(3)
            async with primary.serving():
                await primary.minted()
            before = await history(primary)
        await postgres.stop(first_folder)
        first = await postgres.start(first_folder, postgres.UNSAFE_BUT_FAST)
        async with a_world(first.url, node) as primary:
            assert await history(primary) == before
            replica = await a_copy(first_folder, first.url, second_folder)
        await postgres.stop(first_folder)

        async with a_world(await replica.promote(), node) as promoted:
            await promoted.queue(3)
            async with promoted.lane() as lane:
                await until(lambda: true(lane.pause.reason == COMPARING), 30.0)
                await promoted.minted()
                assert lane.stopped is None
            timeline = await value(promoted.observer, "SELECT timeline FROM lanes")
            assert timeline == await history(promoted) != before
            assert node.minted() == Counter(await promoted.references())
