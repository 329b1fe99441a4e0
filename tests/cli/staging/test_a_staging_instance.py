"""`ltzd run` with a sandbox of its own: refused without `staging`, an ordinary process with it."""

import asyncio
import json
from pathlib import Path
from uuid import uuid4

import aiohttp

from tests.cli.staging.test_sandbox_command import a_sandbox_process
from tests.support.commands import Outcome, begin_ltzd, ltzd, ltzd_apart
from tests.support.instances.instance import Instance
from tests.support.ports import free_port
from tests.support.secret_files import write_secret
from tests.support.waiting import until

TOP = """
database_url = "{database_url}"
master_key_file = "{folder}/master.key"
roles = ["http"]
"""
SECTIONS = """
[node]
rpc_url = "{rpc_url}"
[contracts]
ltz = "{LTZ}"
perk_nft = "{PerkNFT}"
points_sale = "{PointsSale}"
business_escrow = "{BusinessEscrow}"
first_block = {first_block}
[http]
port = {http_port}
[admin]
port = {admin_port}
"""
BRAND = """
[brand]
id = "{id}"
name = "{name}"
domains = ["staging.example"]
webhook_url = "{webhook_url}"

[[events]]
type = "form_submit"
reward = 7
"""


async def test_a_staging_process_uses_the_sandbox_and_says_so(
    one_instance: Instance, tmp_path: Path
) -> None:
    dev = one_instance.dev_json
    values = dev["contracts"] | {
        "database_url": dev["databaseUrl"],
        "folder": one_instance.data_dir,
        "rpc_url": dev["rpcUrl"],
        "first_block": await one_instance.ask("SELECT first_block FROM chains"),
        "http_port": free_port(),
        "admin_port": free_port(),
    }
    top, sections = TOP.format(**values), SECTIONS.format(**values)
    async with a_sandbox_process(tmp_path) as (_, block):
        strict = block.replace("staging = true", "staging = false")
        refused_file = write_secret(tmp_path / "strict.toml", top + strict + sections)
        refused = await ltzd_apart("run", "--config", refused_file)
        config = write_secret(tmp_path / "ltzd.toml", top + block + sections)
        process = await begin_ltzd("run", "--config", config)
        try:
            brand, admin_url = (
                f"0x{uuid4().hex}00000000",
                f"http://127.0.0.1:{values['admin_port']}",
            )
            await until(lambda: _is_ready(admin_url))
            status = (await ltzd("status", "--json", "--config", config)).json
            page = await ltzd("status", "--config", config)
            file = tmp_path / "brand.toml"
            inbox = next(line for line in block.splitlines() if "webhook_url = " in line)
            url = inbox.partition('"')[2].rstrip('"').replace("BRAND_ID", brand)
            file.write_text(BRAND.format(id=brand, name=brand, webhook_url=url))
            applied = await ltzd("brand", "apply", file, "--config", config)

            events: list[Outcome] = []

            async def is_sent() -> bool:
                arguments = ("--brand", brand, "--email", f"{uuid4().hex}@staging.example")
                sending = ("trigger", "form_submit", *arguments, "--json", "--config", config)
                sent = await ltzd("event", *sending)
                events.append(sent)
                return sent.code == 0

            await until(is_sent)
            listed = await ltzd("event", "list", "--brand", brand, "--json", "--config", config)
            process.terminate()
            _, log = await asyncio.wait_for(process.communicate(), 60)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    assert refused.code == 1
    assert "with staging = true, for staging" in refused.err
    assert applied.code == 0, applied.err
    assert "staging" in json.dumps(status)
    assert "staging" in page.out
    assert [event["eventId"] for event in listed.json["events"]] == [events[-1].json["eventId"]]
    assert process.returncode == 0
    assert b"ltzd.staging" in log


async def _is_ready(admin_url: str) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{admin_url}/readyz?role=http") as answer,
        ):
            return answer.status == 200
    except aiohttp.ClientError:
        return False
