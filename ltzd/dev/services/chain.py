"""The dev chain's process: anvil, or the tester chain.

anvil stores its chain in `<data_dir>/anvil/`, every second and on SIGTERM. The tester chain is in
memory, so each of its processes starts a new chain.
"""

import asyncio
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import aiohttp
import msgspec

from ltzd.concurrency.clock import loop_time
from ltzd.dev.services import ports, processes
from ltzd.dev.services.data_dir import read_number
from ltzd.dev.services.processes import Service
from ltzd.errors import Misconfigured

NAME = "chain"
CHAIN_ID = 31337
BLOCK_GAS_LIMIT = 300_000_000
START_SECONDS = 60.0

Kind = Literal["tester", "anvil"]


class DevChain(msgspec.Struct, frozen=True):
    rpc_url: str
    kind: Kind
    chain_id: int
    service: Service


async def start(
    data_dir: Path, kind: Literal["auto", "tester", "anvil"], block_time: float, port: int | None
) -> DevChain:
    """Start the chain, or adopt a running one of the same kind, block time and port.

    `block_time` is in seconds; 0 mines on demand. Without `port`, the last port is used again if
    it is free. Raises Misconfigured.
    """
    program = await asyncio.to_thread(find_anvil) if kind != "tester" else None
    if kind == "anvil" and program is None:
        raise Misconfigured(
            "anvil is not installed; `make test` installs it, or put anvil on PATH, "
            "or choose --chain tester."
        )
    variant = f"{'anvil' if program else 'tester'}, a block every {block_time:g} s"
    service = processes.find_running(data_dir, NAME)
    if service is not None and (service.variant != variant or port not in (None, service.port)):
        await processes.stop(service)
        service = None
    if service is not None:
        await _ready(service)
    elif program is None:
        service = await _start_tester(data_dir, block_time, port, variant)
    else:
        service = await _start_anvil(data_dir, program, block_time, port, variant)
    chosen: Kind = "tester" if program is None else "anvil"
    return DevChain(_rpc_url(service.port), chosen, await _chain_id(service), service)


async def genesis_hash(rpc_url: str) -> str:
    """The hash of block 0 in 0x-hex, which identifies the chain."""
    block = await _call(rpc_url, "eth_getBlockByNumber", "0x0", False)
    if not isinstance(block, dict) or not isinstance(block.get("hash"), str):
        raise Misconfigured(f"The node at {rpc_url} has no block 0; give another --rpc-url.")
    return str(block["hash"])


async def _start_tester(
    data_dir: Path, block_time: float, port: int | None, variant: str
) -> Service:
    port = port or _port(data_dir)
    argv = [sys.executable, "-m", "ltzd.dev.tester_chain"]
    argv += ["--port", str(port), "--block-time", f"{block_time:g}"]
    service = await processes.start(data_dir, NAME, argv, port=port, variant=variant)
    await _ready(service)
    return service


async def _start_anvil(
    data_dir: Path, program: str, block_time: float, port: int | None, variant: str
) -> Service:
    port = port or _port(data_dir)
    folder = data_dir / "anvil"
    genesis_time = await asyncio.to_thread(_genesis_time, folder)
    argv = [program, *_anvil_options(folder, port, genesis_time)]
    if block_time:
        argv += ["--block-time", f"{block_time:g}"]
    service = await processes.start(data_dir, NAME, argv, port=port, variant=variant)
    await _ready(service)
    await _set_clock(service)
    return service


def _anvil_options(folder: Path, port: int, genesis_time: int) -> list[str]:
    return [
        *("--host", ports.LOOPBACK, "--port", str(port), "--chain-id", str(CHAIN_ID)),
        *("--state", str(folder / "state.json"), "--state-interval", "1"),
        *("--cache-path", str(folder / "cache")),
        *("--timestamp", str(genesis_time)),
        *("--gas-limit", str(BLOCK_GAS_LIMIT)),
        # The default order by fee tries a sender's dearer transaction before its earlier ones and
        # silently drops it, because its nonce is then too high.
        *("--order", "fifo"),
        "--quiet",
    ]


def _genesis_time(folder: Path) -> int:
    """The genesis timestamp in Unix seconds: constant for as long as the chain's state is kept.

    anvil derives block 0 from this timestamp at each start, so another one would change the
    genesis hash of a stored chain. A new chain gets a new timestamp and so another genesis hash.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    state, remembered = folder / "state.json", folder / "genesis-time"
    last = read_number(remembered)
    if last and _is_complete(state):
        return last
    if state.exists():
        state.replace(folder / "state.json.broken")
    now = max(int(time.time()), last + 1)
    remembered.write_text(str(now))
    return now


def _is_complete(state: Path) -> bool:
    """False for a truncated file: anvil writes in place, so a kill can cut the file off."""
    try:
        with state.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"}"
    except OSError:
        return False


async def _set_clock(service: Service) -> None:
    """Set anvil's clock to the present; it starts at the genesis timestamp."""
    url = _rpc_url(service.port)
    head = await _call(url, "eth_getBlockByNumber", "latest", False)
    after_head = int(str(head["timestamp"]), 16) + 1 if isinstance(head, dict) else 0
    await _call(url, "anvil_setTime", max(int(time.time()), after_head))


def _port(data_dir: Path) -> int:
    last = processes.remembered_port(data_dir, NAME)
    return last if last and ports.is_free(last) else ports.free_port()


def _rpc_url(port: int) -> str:
    return f"http://{ports.LOOPBACK}:{port}"


def find_anvil() -> str | None:
    """Return anvil's path: LTZD_ANVIL, else the npm package of this clone, else PATH.

    The package's `.bin/anvil` is not used: it is a Node wrapper that hides anvil's exit code.
    """
    named = os.environ.get("LTZD_ANVIL")
    if named:
        if not os.access(named, os.X_OK):
            raise Misconfigured(
                f"LTZD_ANVIL names {named}, which is not an executable file; correct it."
            )
        return str(Path(named).absolute())
    installed = next((path for path in _npm_packages() if os.access(path, os.X_OK)), None)
    return str(installed) if installed else shutil.which("anvil")


def _npm_packages() -> Iterator[Path]:
    processor = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine := platform.machine(), machine)
    package = f"anvil-{platform.system().lower()}-{processor}"
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        yield root / "contracts/node_modules/@foundry-rs" / package / "bin/anvil"


async def _chain_id(service: Service) -> int:
    return int(str(await _call(_rpc_url(service.port), "eth_chainId")), 16)


async def _ready(service: Service) -> None:
    deadline = loop_time() + START_SECONDS
    while True:
        try:
            await _chain_id(service)
            return
        except (Misconfigured, ValueError) as error:
            if not processes.is_alive(service):
                raise _failed(service, processes.failure_reason(service)) from error
            if loop_time() > deadline:
                raise _failed(service, f"no answer; see {service.log_path}") from error
        await asyncio.sleep(0.02)


def _failed(service: Service, reason: str) -> Misconfigured:
    kind = service.variant.partition(",")[0]
    return Misconfigured(
        f"The dev chain ({kind}) cannot be used: {reason}; "
        "start with --clean to begin a new one, or choose another with --chain."
    )


async def _call(rpc_url: str, method: str, *parameters: object) -> object:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(parameters)}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.post(rpc_url, json=request) as reply,
        ):
            answer = await reply.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise Misconfigured(
            f"The node at {rpc_url} does not answer; start it, or give another --rpc-url."
        ) from error
    if not isinstance(answer, dict) or "result" not in answer:
        raise Misconfigured(
            f"The node at {rpc_url} does not support {method}; give another --rpc-url."
        )
    result: object = answer["result"]
    return result
