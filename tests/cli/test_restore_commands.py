"""`ltzd restore` and `ltzd lane adopt` say what differs, and change only what they name."""

import json
import shlex
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ltzd.chain.signing import Signer, UnsignedTransaction
from ltzd.cli.lane import adopt
from ltzd.cli.options import target_options
from ltzd.errors import NodeUnavailable
from ltzd.operator import restoring
from ltzd.operator.restoring import Applied, Comparison
from ltzd.rules.operator.fees import GWEI
from ltzd.store.database import session
from ltzd.values import checksummed, hex_of
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, OTHERS_AT
from tests.support.chain.mint_world import World, observer, stop_of, world
from tests.support.commands import Outcome, ltzd
from tests.support.rows.core import MINTER, pool, value
from tests.support.secret_files import write_secret
from tests.support.surfaces.event_surface import a_served_node

__all__ = ["observer", "pool", "world"]

WALLET = checksummed(MINTER.address)
STOLEN = Signer(b"\x07" * 32)


class Cli:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.options = f"--data-dir {shlex.quote(str(data_dir))}"

    async def __call__(self, *arguments: object) -> Outcome:
        return await ltzd(*arguments, "--data-dir", self._data_dir)


@pytest_asyncio.fixture
async def cli(world: World, data_dir: Path) -> AsyncIterator[Cli]:
    """The commands, with a dev instance's files that name the fake node."""
    names = ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow")
    async with a_served_node(world.node) as url:
        content = json.loads((data_dir / "dev.json").read_text()) | {
            "rpcUrl": url,
            "chainId": CHAIN_ID,
            "contracts": dict(zip(names, map(hex_of, (LTZ_AT, *OTHERS_AT)), strict=True)),
        }
        write_secret(data_dir / "dev.json", json.dumps(content))
        yield Cli(data_dir)


async def rows(world: World) -> str:
    """Everything that `ltzd restore` could change."""
    text: str = await value(
        world.observer,
        """
        SELECT (SELECT json_agg(l ORDER BY l.wallet) FROM lanes l)::text
               || (SELECT json_agg(r ORDER BY r.position) FROM rewards r)::text
               || (SELECT json_agg(c) FROM reference_counters c)::text
        """,
    )
    return text


async def test_a_database_that_fits_needs_nothing(world: World, cli: Cli) -> None:
    world.node.mines_at_once = True
    await world.queue(2)
    async with world.serving():
        await world.minted()
        done = await cli("restore", "check")
        assert done.code == 0, done.err
        assert "Nothing to do" in done.out
        done = await cli("restore", "apply")
        assert "nothing changed" in done.out
        report = (await cli("restore", "check", "--json")).json
    assert report["mustApply"] is False
    assert [lane["wallet"] for lane in report["lanes"]] == [WALLET]


async def test_a_check_tells_what_was_lost_and_changes_nothing(world: World, cli: Cli) -> None:
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    world.node.mine()
    await world.minted()
    await world.lose_the_last_commits()
    await value(world.observer, "DELETE FROM rewards WHERE ltz = -1 RETURNING 1")
    before = await rows(world)
    done = await cli("restore", "check")
    assert done.code == 1
    assert f"The mint lane of {WALLET}: next nonce 0" in done.out
    assert "The chain knows 1 nonces of it, the database 0" in done.out
    assert "LTZ has used later references: `ltzd restore apply` continues at 256" in done.out
    assert f"To do: `ltzd restore apply {cli.options}`." in done.out
    assert await rows(world) == before


@pytest.mark.parametrize(
    ("data_dir", "config", "options"),
    [
        (".ltzd", "/etc/ltzd/ltzd.toml", " --config /etc/ltzd/ltzd.toml"),
        (".ltzd", "a folder/ltzd.toml", " --config 'a folder/ltzd.toml'"),
        (".ltzd", None, ""),
        ("other", None, " --data-dir other"),
    ],
)
def test_the_next_command_names_the_files_of_this_one(
    data_dir: str, config: str | None, options: str
) -> None:
    assert target_options(Path(data_dir), None if config is None else Path(config)) == options


UNDONE = "lacks what people decided after the copy was made, such as retired wallets"
"""A copy lets the thief of a key in again, whom people had locked out after it was made."""


async def test_a_copy_undoes_what_people_have_decided_since(world: World, cli: Cli) -> None:
    await world.queue(1)
    async with world.serving():
        await world.settled("published")
    whole = await cli("restore", "check")
    await world.lose_the_last_commits()
    world.node.mine(takes_pool=True)
    older = await cli("restore", "check")
    assert (whole.code, UNDONE in whole.out) == (0, False)
    assert (older.code, UNDONE in older.out) == (1, True)


async def test_apply_lets_a_restored_database_continue_and_says_so(world: World, cli: Cli) -> None:
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    await world.lose_the_last_commits()
    world.node.mine(takes_pool=True)
    async with world.lane() as lane:
        await stop_of(lane)
        done = await cli("restore", "apply")
        assert f"The mint lane of {WALLET} continues at nonce 1; it was at 0." in done.out
        assert "References continue at 256; they were at 0." in done.out
        assert "nothing needs a restart" in done.out
        assert UNDONE in done.out
    done = await cli("restore", "apply", "--json")
    assert done.json["resumed"] == []
    world.node.mines_at_once = True
    async with world.serving():
        await world.minted()
    assert world.node.minted() == Counter(await world.references())


@pytest.mark.parametrize("as_json", [False, True])
async def test_apply_tells_its_changes_though_the_nodes_answer_no_more(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    await world.queue(1)
    async with world.serving():
        await world.settled("published")
    await world.lose_the_last_commits()
    world.node.mine(takes_pool=True)
    apply = restoring.apply

    async def no_node(*_: Any) -> Comparison:
        raise NodeUnavailable("No node shows its newest block")

    async def apply_and_lose_the_nodes(*arguments: Any) -> Applied:
        applied = await apply(*arguments)
        monkeypatch.setattr(restoring, "compare", no_node)
        return applied

    monkeypatch.setattr(restoring, "apply", apply_and_lose_the_nodes)
    done = await cli("restore", "apply", *(["--json"] if as_json else []))
    assert done.code == 0, done.err
    if as_json:
        assert [lane["nonce"] for lane in done.json["resumed"]] == [1]
        assert done.json["after"] is None
    else:
        assert f"The mint lane of {WALLET} continues at nonce 1; it was at 0." in done.out
        assert f"run `ltzd restore check {cli.options}` when they do" in done.out


async def a_thief_leaves_a_gap(world: World, state: str) -> None:
    """A wallet in this state has used two nonces; its thief's nonce 9 waits in the pool."""
    async with session(world.observer) as connection:
        await connection.execute(
            """
            INSERT INTO operator_wallets (chain_id, wallet, kind, state)
            VALUES ($1, $2, 'mint', $3)
            """,
            CHAIN_ID,
            STOLEN.address,
            state,
        )
        await connection.execute(
            """
            INSERT INTO lanes (chain_id, wallet, kind, epoch, next_nonce)
            VALUES ($1, $2, 'mint', 5, 2)
            """,
            CHAIN_ID,
            STOLEN.address,
        )
    for _ in range(2):
        world.node.use_nonce(STOLEN)
    unsigned = UnsignedTransaction(CHAIN_ID, 9, GWEI, 2 * GWEI, 30_000, LTZ_AT, 0, b"x", False)
    sent = await world.node.call("eth_sendRawTransaction", hex_of(STOLEN.sign(unsigned).raw))
    assert sent


async def test_a_retired_wallet_is_not_compared(world: World, cli: Cli) -> None:
    """Or its thief could hold up the restore of every lane with one pending transaction."""
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    await world.lose_the_last_commits()
    world.node.mine(takes_pool=True)
    await a_thief_leaves_a_gap(world, "retired")
    done = await cli("restore", "check")
    assert WALLET in done.out
    assert checksummed(STOLEN.address) not in done.out
    done = await cli("restore", "apply")
    assert done.code == 0, done.err
    assert f"The mint lane of {WALLET} continues at nonce 1; it was at 0." in done.out
    done = await cli("restore", "check")
    assert done.code == 0, done.out


async def test_a_gap_holds_back_its_own_lane_only(world: World, cli: Cli) -> None:
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    await world.lose_the_last_commits()
    world.node.mine(takes_pool=True)
    await a_thief_leaves_a_gap(world, "active")
    stolen = checksummed(STOLEN.address)
    done = await cli("restore", "check")
    assert f"Transactions of {stolen} with the nonces 9 wait in a node's pool" in done.out
    assert "leaves this lane as it is; the other lanes continue" in done.out
    done = await cli("restore", "apply")
    assert done.code == 1
    assert f"The mint lane of {WALLET} continues at nonce 1; it was at 0." in done.out
    assert f"The mint lane of {stolen} is left as it was" in done.out
    assert f"ltzd wallet retire {stolen} --stolen" in done.out
    where = "FROM lanes WHERE wallet = $1"
    assert await value(world.observer, f"SELECT next_nonce {where}", STOLEN.address) == 2
    done = await cli("restore", "apply", "--json")
    assert done.code == 1
    assert [lane["wallet"] for lane in json.loads(done.out)["heldBack"]] == [stolen]
    assert (await cli("wallet", "retire", stolen, "--stolen")).code == 0
    assert (await cli("restore", "check")).code == 0


async def test_a_wallet_is_adopted_only_with_a_confirmation(world: World, cli: Cli) -> None:
    world.node.use_nonce(MINTER)
    adopt = ("lane", "adopt", WALLET, "--watch-seconds", 0)
    done = await cli(*adopt)
    assert done.code == 1
    assert "has not seen" in done.err
    done = await cli(*adopt, "--kind", "mint")
    assert done.code == 1
    assert "Give --yes" in done.err
    assert await value(world.observer, "SELECT count(*) FROM lanes") == 0
    done = await cli(*adopt, "--kind", "mint", "--yes")
    assert done.code == 0, done.err
    assert f"The mint wallet {WALLET} is adopted: its lane continues at nonce 1." in done.out
    done = await cli(*adopt, "--yes")
    assert done.code == 1
    assert "nothing to adopt" in done.err
    world.node.mines_at_once = True
    await world.queue()
    async with world.serving():
        await world.minted()


async def test_a_retired_wallet_is_not_adopted(world: World, cli: Cli) -> None:
    """The thief of its key has gone on signing."""
    async with world.serving():
        pass
    assert (await cli("lane", "pause", WALLET, "--reason", "a thief")).code == 0
    assert (await cli("wallet", "retire", WALLET, "--stolen")).code == 0
    world.node.use_nonce(MINTER)
    before = await rows(world)
    done = await cli("lane", "adopt", WALLET, "--yes", "--watch-seconds", 0)
    assert done.code == 1
    assert f"{WALLET} was retired at " in done.err
    assert "ltzd signs nothing with it" in done.err
    assert await rows(world) == before


async def test_a_wallet_that_is_in_use_now_is_not_adopted(world: World, cli: Cli) -> None:
    world.node.use_nonce(MINTER)
    calls = world.node.call_counts

    def sign_again() -> None:
        world.node.use_nonce(MINTER)
        assert calls["eth_getTransactionCount"]

    world.node.before["txpool_contentFrom"] = lambda: world.node.before.update(
        {"txpool_contentFrom": sign_again}
    )
    done = await cli("lane", "adopt", WALLET, "--kind", "mint", "--yes", "--watch-seconds", 0.1)
    assert done.code == 1
    assert "has just signed again" in done.err
    assert await value(world.observer, "SELECT count(*) FROM lanes") == 0


async def test_a_wallet_that_signs_while_a_person_is_asked_is_not_adopted(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node.use_nonce(MINTER)
    monkeypatch.setattr(adopt, "_confirm", lambda *_, **__: world.node.use_nonce(MINTER))
    done = await cli("lane", "adopt", WALLET, "--kind", "mint", "--watch-seconds", 0)
    assert done.code == 1
    assert "has just signed again" in done.err


@pytest.mark.parametrize("command", [("restore", "check"), ("restore", "apply")])
async def test_with_a_node_that_is_behind_nothing_is_compared(
    world: World, cli: Cli, command: tuple[str, str]
) -> None:
    world.node.mines_at_once = True
    await world.queue(2)
    async with world.serving():
        await world.minted()
    world.node.lag = world.node.head.number
    done = await cli(*command)
    assert (done.code, done.out) == (1, "")
    assert "The nodes are behind: the index has read block" in done.err
    assert "Repeat the command when a node has caught up" in done.err


@pytest.mark.parametrize("command", [("restore", "check"), ("restore", "apply")])
async def test_without_a_node_nothing_is_compared(
    world: World, cli: Cli, command: tuple[str, str]
) -> None:
    world.node.is_down = True
    done = await cli(*command)
    assert done.code == 1
    assert "No node answers" in done.err
