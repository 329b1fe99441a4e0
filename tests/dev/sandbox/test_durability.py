"""The sandbox keeps its data across restarts and kills, and refuses to start with a sentence."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.journal import Journal
from ltzd.errors import Misconfigured
from ltzd.providers.identity.client import IdentityClient, IdentityPolicy

NO_NODE = "http://127.0.0.1:1"
EMAIL = "ann@shop.example"

# A sandbox in a process of its own, which says where it is and waits to be killed.
PROGRAM = """
import asyncio, sys
from pathlib import Path
from ltzd.dev.sandbox import Sandbox

async def main():
    sandbox = Sandbox(Path(sys.argv[1]), 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    policy = sandbox.identity_policy()
    print(policy.base_url, policy.app_id, policy.app_secret, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def started(data_dir: Path, port: int = 0) -> Sandbox:
    sandbox = Sandbox(data_dir, port, NO_NODE, None)
    await sandbox.start()
    return sandbox


async def test_every_user_that_was_told_of_survives_a_kill(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(tmp_path), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    base_url, app_id, app_secret = (await process.stdout.readline()).decode().split()
    policy = IdentityPolicy(base_url, app_id, app_secret, max_attempts=1)
    async with IdentityClient(policy) as client:
        callers = {
            f"{n}@shop.example": asyncio.create_task(client.wallet_of_email(f"{n}@shop.example"))
            for n in range(100)
        }
        await asyncio.wait(callers.values(), return_when=asyncio.FIRST_COMPLETED)
        process.kill()
        await process.wait()
        await asyncio.gather(*callers.values(), return_exceptions=True)
    shown = {
        email: caller.result() for email, caller in callers.items() if caller.exception() is None
    }

    sandbox = await started(tmp_path)
    async with IdentityClient(sandbox.identity_policy()) as client:
        for email, user in shown.items():
            assert await client.wallet_of_email(email) == user
    await sandbox.stop()
    assert shown
    assert sandbox.identity_policy().app_secret == app_secret


async def test_a_restart_keeps_users_added_wallets_and_keys(tmp_path: Path) -> None:
    first = await started(tmp_path)
    policy = first.identity_policy()
    async with IdentityClient(policy) as client:
        user = await client.wallet_of_email(EMAIL)
    keys = first.control_endpoints()["jwksUrl"].removeprefix(first.url)
    await first.stop()

    second = await started(tmp_path)
    async with IdentityClient(second.identity_policy()) as client:
        assert await client.wallet_of_email(EMAIL) == user
    assert second.identity_policy().app_secret == policy.app_secret
    assert second.control_endpoints()["jwksUrl"] == second.url + keys
    await second.stop()


async def test_a_restart_keeps_what_was_linked(tmp_path: Path) -> None:
    first = await started(tmp_path)
    async with aiohttp.ClientSession() as session:
        order = {"provider": "telegram", "id": "77", "links": [{"email": EMAIL}]}
        for body in ({"email": EMAIL}, order):
            async with session.post(
                first.control_endpoints()["identityTokenUrl"], json=body
            ) as answer:
                given = await answer.json()
    await first.stop()

    second = await started(tmp_path)
    async with IdentityClient(second.identity_policy()) as client:
        assert (await client.wallet_of_email(EMAIL)).subject == given["subject"]
    await second.stop()


async def test_a_torn_last_line_is_forgotten_and_the_rest_is_kept(tmp_path: Path) -> None:
    sandbox = await started(tmp_path)
    async with IdentityClient(sandbox.identity_policy()) as client:
        user = await client.wallet_of_email(EMAIL)
    await sandbox.stop()
    with (tmp_path / "sandbox" / "identity.jsonl").open("ab") as file:
        file.write(b'{"kind":"user","subj')

    for _ in range(2):
        again = await started(tmp_path)
        async with IdentityClient(again.identity_policy()) as client:
            assert await client.wallet_of_email(EMAIL) == user
            assert await client.wallet_of_email("bob@shop.example") != user
        await again.stop()


async def test_only_the_owner_can_read_what_is_kept(tmp_path: Path) -> None:
    sandbox = await started(tmp_path)
    path = tmp_path / "sandbox" / "identity.jsonl"

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await sandbox.stop()


async def test_a_second_sandbox_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    sandbox = await started(tmp_path)

    with pytest.raises(Misconfigured, match="Another sandbox"):
        await started(tmp_path)
    await sandbox.stop()


async def test_an_occupied_port_is_a_plain_sentence_and_leaves_nothing_locked(
    tmp_path: Path,
) -> None:
    sandbox = await started(tmp_path / "one")
    port = int(sandbox.url.rpartition(":")[2])

    with pytest.raises(Misconfigured, match=f"Port {port} is in use"):
        await started(tmp_path / "two", port)

    await (await started(tmp_path / "two")).stop()
    await sandbox.stop()


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"kind":"app"}\n', b"\xff\n"])
async def test_a_damaged_journal_is_a_plain_sentence(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "sandbox" / "identity.jsonl").write_bytes(line)

    with pytest.raises(Misconfigured, match="--clean"):
        await started(tmp_path)


async def test_a_data_directory_that_is_a_file_is_a_plain_sentence(tmp_path: Path) -> None:
    (tmp_path / "sandbox").write_text("in the way")

    with pytest.raises(Misconfigured, match="cannot use"):
        await started(tmp_path)


async def test_stopping_twice_does_no_harm(tmp_path: Path) -> None:
    sandbox = await started(tmp_path)

    await sandbox.stop()
    await sandbox.stop()


async def test_a_disk_that_refuses_fails_every_later_answer(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path / "journal.jsonl")
    read_only = os.open(tmp_path / "journal.jsonl", os.O_RDONLY)
    writable, journal._descriptor = journal._descriptor, read_only

    with pytest.raises(Misconfigured, match="cannot write"):
        await journal.wait_durable(journal.append({"a": 1}))
    with pytest.raises(Misconfigured, match="cannot write"):
        journal.append({"a": 2})
    await journal.close()
    os.close(writable)
