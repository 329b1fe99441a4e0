"""`python -m ltzd.dev.tester_chain` starts, prints its URL and ends on a signal."""

import asyncio
import json
import signal
import socket
import sys
import urllib.request
from asyncio.subprocess import PIPE, Process
from typing import Any

from tests.support.chain.tester import ENDLESS


async def _started(*arguments: str) -> Process:
    command = [sys.executable, "-m", "ltzd.dev.tester_chain", *arguments]
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)


async def _url(process: Process) -> str:
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
    assert line.startswith("listening on http://127.0.0.1:"), line
    return line.split()[-1]


def _call(url: str, method: str, *params: object, seconds: float = 5) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    with urllib.request.urlopen(url, data=body, timeout=seconds) as reply:
        return json.load(reply).get("result")


async def test_sigterm_ends_it_at_once_even_while_code_runs() -> None:
    process = await _started("--port", "0")
    url = await _url(process)
    account = (await asyncio.to_thread(_call, url, "eth_accounts"))[0]
    endless = {"from": account, "data": "0x" + ENDLESS[-8:], "gas": hex(30_000_000)}
    await asyncio.to_thread(_call, url, "eth_sendTransaction", endless)

    process.send_signal(signal.SIGTERM)  # The code would run for ten seconds.
    output, faults = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, output, faults) == (0, b"", b"")


async def test_a_port_in_use_is_a_sentence_and_a_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = await _started("--port", str(port))
        output, faults = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert output == b""
    assert faults.decode() == (
        f"Port {port} on 127.0.0.1 is in use by another program; "
        "stop it or choose another with --port.\n"
    )


async def test_it_listens_to_this_machine_alone() -> None:
    process = await _started("--port", "0", "--block-time", "0.1")
    url = await _url(process)
    port = int(url.rsplit(":", 1)[1])
    with socket.socket() as elsewhere:
        # Free on another address of this machine, so it is not bound to all of them.
        elsewhere.bind(("127.0.0.2", port))
    process.terminate()
    await asyncio.wait_for(process.wait(), 20)
