"""The output, the records and the refusals of `ltzd deploy`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ltzd.chain.contracts.access_control import has_role_call
from ltzd.chain.deployment import agreement, deployed_file
from ltzd.chain.node.rpc import Rpc
from ltzd.dev.services.chain import DevChain
from ltzd.errors import Misconfigured
from ltzd.values import checksummed, hex_of
from tests.support.chain.chains import anvil_chain
from tests.support.chain.deployments import GUARDIAN, MINTER, REGISTRAR, RELAYER, SENDS, Site
from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.node import a_faulty_node
from tests.support.commands import Outcome, ltzd
from tests.support.secret_files import write_secret

__all__ = ["anvil_chain"]

CONTRACTS = ["LTZ", "PerkNFT", "PointsSale", "BusinessEscrow"]


class Yard:
    """A folder with a funded key and settings that name little more than a node."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.site = site
        self.folder = folder
        self.out = folder / "contracts.json"
        write_secret(folder / "key", site.secret.hex())
        (folder / "ltzd.toml").write_text(
            f'database_url = ""\n[node]\nrpc_url = "{site.rpc_url}"\n[contracts]\nltz = ""\n'
        )

    async def deploy(self, *options: object, chain_id: int = 31337) -> Outcome:
        return await ltzd(
            "deploy",
            *("--config", self.folder / "ltzd.toml"),
            *("--key", self.folder / "key"),
            *("--chain-id", chain_id),
            *options,
        )

    async def deploy_all(self, *options: object) -> Outcome:
        return await self.deploy(
            *("--minter", hex_of(MINTER), "--mint-limit", "1000.5", "--mint-window", 3600),
            *("--relayer", hex_of(RELAYER), "--guardian", hex_of(GUARDIAN)),
            *("--registrar", hex_of(REGISTRAR), *options),
        )


@pytest_asyncio.fixture
async def yard(tmp_path: Path, anvil_chain: DevChain) -> Yard:
    site = Site(anvil_chain.rpc_url)
    await site.fund()
    return Yard(tmp_path, site)


async def test_it_prints_and_remembers_what_it_deployed(yard: Yard) -> None:
    done = await yard.deploy_all()

    assert list(done.json["contracts"]) == CONTRACTS
    assert done.json["chainId"] == 31337
    assert done.json["deployer"] == checksummed(yard.site.signer.address)
    assert json.loads(yard.out.read_text()) == done.json
    assert 'business_escrow = "0x' in done.err
    assert yard.site.secret.hex() not in done.err + done.out + yard.out.read_text()
    yard.site.written = deployed_file.read(yard.out)
    assert await yard.site.holds("PerkNFT", "REDEEMER", RELAYER)
    assert await yard.site.ask("LTZ", "mintLimit", MINTER) == 1000_500000000000000000
    assert await yard.site.ask("PointsSale", "defaultAdminDelay") == 172_800


async def test_it_says_the_same_again_and_sends_nothing(yard: Yard) -> None:
    first = await yard.deploy_all()

    again = await yard.deploy_all()

    assert again.json == first.json
    assert await yard.site.nonce() == SENDS


async def test_a_rehearsal_shows_the_steps_and_leaves_no_trace(yard: Yard) -> None:
    shown = await yard.deploy_all("--dry-run")

    assert shown.code == 0
    assert len(shown.out.splitlines()) == SENDS
    assert shown.out.startswith("create LTZ at 0x")
    assert not yard.out.exists()
    assert await yard.site.nonce() == 0


async def test_another_chain_than_the_one_named_is_refused(yard: Yard) -> None:
    refused = await yard.deploy(chain_id=1)

    assert refused.code == 1
    assert "is on chain 31337, not on 1: correct node.urls or --chain-id" in refused.err
    assert not yard.out.exists()


@pytest.mark.parametrize("changes", [{"chainId": 1}, {"genesis": "0x" + "00" * 32}])
async def test_another_chain_than_the_one_remembered_is_refused(
    yard: Yard, changes: dict[str, object]
) -> None:
    done = await yard.deploy()
    yard.out.write_text(json.dumps(done.json | changes))

    refused = await yard.deploy()

    assert refused.code == 1
    assert f"{yard.out} records a deployment on chain" in refused.err
    assert await yard.site.nonce() == 4


async def test_a_file_that_tells_of_no_deployment_is_refused_and_kept(yard: Yard) -> None:
    yard.out.write_text('{"contracts": 7}')

    refused = await yard.deploy()

    assert "is not a deployment file" in refused.err
    assert yard.out.read_text() == '{"contracts": 7}'


async def test_a_file_that_has_lost_ltz_is_refused(yard: Yard) -> None:
    """The three other contracts hold its address permanently."""
    done = (await yard.deploy()).json
    del done["contracts"]["LTZ"]
    yard.out.write_text(json.dumps(done))

    refused = await yard.deploy()

    assert refused.code == 1
    assert "is not a deployment file" in refused.err
    assert await yard.site.nonce() == 4


async def test_a_key_without_funds_is_refused_with_a_sentence(yard: Yard) -> None:
    await yard.site.fund(0)

    refused = await yard.deploy()

    assert refused.code == 1
    assert "send it some, then run this again" in refused.err


async def test_every_wrong_option_is_named(yard: Yard) -> None:
    refused = await yard.deploy(
        *("--minter", "0x12", "--mint-limit", "1e3", "--relayer", "somebody"),
        *("--guardian", checksummed(yard.site.signer.address).swapcase().replace("0X", "0x")),
    )

    assert refused.code == 1
    for option in ("--minter 0x12:", "--mint-limit 1e3:", "--relayer somebody:", "--guardian 0x"):
        assert option in refused.err
    assert await yard.site.nonce() == 0


@pytest.mark.parametrize("gwei", ["0", "nan", "-1", "1e1", "100.1", "0.0000000001"])
async def test_a_fee_cap_that_is_none_is_refused(yard: Yard, gwei: str) -> None:
    refused = await yard.deploy("--max-fee-gwei", gwei)

    assert refused.code == 1
    assert f"--max-fee-gwei {gwei}: must lie between" in refused.err
    assert await yard.site.nonce() == 0


async def test_a_hot_key_with_a_second_role_is_refused(yard: Yard) -> None:
    refused = await yard.deploy(
        "--relayer", hex_of(RELAYER), "--registrar", hex_of(RELAYER), "--settler", hex_of(RELAYER)
    )

    assert "a key on a server must have no other role" in refused.err


async def test_faults_of_the_node_section_are_named_with_their_place(yard: Yard) -> None:
    (yard.folder / "ltzd.toml").write_text('[node]\nrpc_url = "ftp://node"\npol = 1\n')

    refused = await yard.deploy()

    assert "ltzd.toml:2: node.rpc_url: must be a URL" in refused.err
    assert "ltzd.toml:3: node.pol: unknown key" in refused.err


async def test_a_deployment_that_only_the_first_node_shows_is_not_done(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lie leaves the contracts without a guardian, whom nobody misses before an incident."""
    monkeypatch.setattr(agreement, "_LAG_SECONDS", 0.2)
    is_guardian = hex_of(has_role_call("GUARDIAN", GUARDIAN))

    def lie(method: str, params: Sequence[Any], result: Any) -> Any:
        is_it = method == "eth_call" and params[0]["data"] == is_guardian
        return f"0x{1:064x}" if is_it else result

    async with a_faulty_node(yard.site.rpc_url) as liar:
        (yard.folder / "ltzd.toml").write_text(
            f'[node]\nurls = ["{liar.url}", "{yard.site.rpc_url}"]\n'
        )
        liar.faults = Faults(lies=(lie,))
        refused = await yard.deploy_all()
        liar.heal()
        done = await yard.deploy_all()

    assert refused.code == 1
    assert "contradict each other about what is deployed" in refused.err
    assert "The deployment is not known to be complete" in refused.err
    assert json.loads(yard.out.read_text()) == done.json
    yard.site.written = deployed_file.read(yard.out)
    assert await yard.site.holds("PerkNFT", "GUARDIAN", GUARDIAN)


async def test_a_file_is_written_whole_or_not_at_all(yard: Yard, tmp_path: Path) -> None:
    async with Rpc(yard.site.rpc_url) as rpc:
        beginning = await yard.site.beginning(rpc)
    deployed_file.write(yard.out, beginning)

    with pytest.raises(Misconfigured, match="cannot be written"):
        deployed_file.write(tmp_path / "missing" / "contracts.json", beginning)

    assert deployed_file.read(yard.out) == beginning
