"""`ltzd dev`: everything real on one machine, from nothing to the first event.

The services run in sessions of their own and survive a kill -9 of ltzd, which takes them back at
its next start; SIGTERM and Ctrl-C stop everything within ten seconds.
"""

import asyncio
import json
import shutil
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from ltzd.chain.contracts.offers import OfferContracts
from ltzd.chain.deployment.plan import Deployment
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc
from ltzd.daemon import logs
from ltzd.daemon.main import first_cause, run_roles, signals_blocked, stop_on_signals
from ltzd.daemon.settings.accounts import Accounts
from ltzd.daemon.settings.settings import Settings
from ltzd.dev import contracts, data_dir, demo_brands, demo_offers, keys, ports, services
from ltzd.dev import dev_json as door
from ltzd.dev.demo_brands import DemoBrand
from ltzd.dev.options import DevOptions
from ltzd.dev.sandbox.server import Sandbox
from ltzd.dev.services import DevServices
from ltzd.http.payments.handlers import PAYMENT_WEBHOOK
from ltzd.rules.domains.txt_records import record_name
from ltzd.store import database
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import checksummed, hash_of

MAX_IN_FLIGHT = 5_000
POLL_SECONDS = 0.05


def run(options: DevOptions) -> None:
    """Until a signal. Raises Misconfigured with a sentence for a person."""
    with signals_blocked(), data_dir.hold(options.data_dir) as folder:
        uvloop.run(_run(folder, options))


async def _run(folder: Path, options: DevOptions) -> None:
    stop, ready = asyncio.Event(), asyncio.Event()
    stop_on_signals(stop)
    door.shut(folder)
    if options.clean:
        await data_dir.clean(folder)
    ports.check_free(options.port, "--port")
    ports.check_free(options.admin_port, "--admin-port")
    logs.configure()
    serving = asyncio.create_task(_serve(folder, options, stop, ready))
    hurrying = asyncio.create_task(_end_start(serving, stop, ready))
    try:
        await serving
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    except BaseExceptionGroup as group:
        raise first_cause(group) from group
    finally:
        hurrying.cancel()
        door.shut(folder)


async def _end_start(
    serving: asyncio.Task[None], stop: asyncio.Event, ready: asyncio.Event
) -> None:
    """A start that is under way is cancelled by the stop; a ready instance hears it itself."""
    await stop.wait()
    if not ready.is_set():
        serving.cancel()


async def _serve(
    folder: Path, options: DevOptions, stop: asyncio.Event, ready: asyncio.Event
) -> None:
    async with services.running(folder, options) as started, AsyncExitStack() as stack:
        instance = await _set_up(folder, options, started, stack)
        await _live(instance, stop, ready)


@dataclass(frozen=True, slots=True)
class _Instance:
    folder: Path
    services: DevServices
    settings: Settings
    sandbox: Sandbox
    door: dict[str, Any]
    brand: DemoBrand


async def _live(instance: _Instance, stop: asyncio.Event, ready: asyncio.Event) -> None:
    """Run the roles while every service lives."""

    def open_door() -> None:
        ready.set()
        door.open_with(instance.folder, instance.door)
        print(_welcome(instance), flush=True)

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(services.watch(instance.folder, instance.services))
        await run_roles(instance.settings, stop, is_dev=True, on_ready=open_door)
        watching.cancel()


async def _set_up(
    folder: Path, options: DevOptions, started: DevServices, stack: AsyncExitStack
) -> _Instance:
    """Wallets, contracts, schema, brands, sandbox, settings."""
    minter_file, minter = keys.wallet(folder, "minter")
    operator_file, operator = keys.wallet(folder, "operator")
    _, admin = keys.wallet(folder, "admin")
    _, business = keys.wallet(folder, "business")
    async with Rpc(started.rpc_url) as rpc:
        node = Node(rpc)
        wallets = [minter.address, operator.address, admin.address]
        await contracts.fund(rpc, node, wallets)
        terms = contracts.dev_terms(admin.address, minter.address, operator.address)
        genesis = hash_of(started.genesis)
        deployment = await contracts.deployed(folder, rpc, started.chain_id, genesis, admin, terms)
    await database.migrate(started.database_url)
    sealer = Sealer.from_file(folder / "master.key", create=True)
    sandbox = Sandbox(folder, _sandbox_port(folder), started.rpc_url, deployment.address("LTZ"))
    sandbox.set_payment_events_url(f"http://127.0.0.1:{options.port}{PAYMENT_WEBHOOK}")
    sandbox.set_ltzd_url(f"http://127.0.0.1:{options.port}")
    await sandbox.start()
    stack.push_async_callback(sandbox.stop)
    brand, other = await _demo_brands(folder, started, sealer, sandbox)
    async with Rpc(started.rpc_url) as rpc:
        offered = await demo_offers.stand(
            rpc, _offer_contracts(deployment), admin, brand.brand, business.address
        )
    content = {
        "baseUrl": f"http://127.0.0.1:{options.port}",
        "adminUrl": f"http://127.0.0.1:{options.admin_port}",
        "rpcUrl": started.rpc_url,
        "chainId": started.chain_id,
        "explorerUrl": sandbox.explorer_url,
        "databaseUrl": started.database_url,
        "redisUrl": started.redis_url,
        "sandboxUrl": sandbox.url,
        "operator": checksummed(operator.address),
        "operators": [checksummed(operator.address)],
        "minter": checksummed(minter.address),
        "contracts": {
            name: checksummed(placed.address) for name, placed in deployment.placed.items()
        },
        "brand": brand.door,
        "otherBrand": other.door,
        **offered,
        "site": sandbox.site_section(),
        "payments": sandbox.payments_section(),
        "sandbox": sandbox.doors(),
    }
    hot_keys = {"minter_key_file": minter_file, "relay_key_file": operator_file}
    settings = _settings(folder, options, started, deployment, sandbox, hot_keys)
    return _Instance(folder, started, settings, sandbox, content, brand)


async def _demo_brands(
    folder: Path, started: DevServices, sealer: Sealer, sandbox: Sandbox
) -> tuple[DemoBrand, DemoBrand]:
    """Applied once, and with what the outside world would know of them."""

    async def applied(name: str) -> DemoBrand:
        brand = await demo_brands.apply(
            folder, started.database_url, sealer, name, sandbox.inbox_url
        )
        record = f"brand_id={brand.brand_id};api_key={brand.door['verificationToken']}"
        await sandbox.set_txt(record_name(brand.domain), [record])
        return brand

    return await applied("brand"), await applied("other_brand")


def _offer_contracts(deployment: Deployment) -> OfferContracts:
    return OfferContracts(
        deployment.address("PerkNFT"),
        deployment.address("PointsSale"),
        deployment.address("BusinessEscrow"),
        deployment.first_block,
    )


def _sandbox_port(folder: Path) -> int:
    """The same at every start while it is free, so that open pages stay good."""
    remembered = folder / "sandbox.port"
    if remembered.exists():
        port = int(remembered.read_text())
        if ports.is_free(port):
            return port
    port = ports.free_port()
    remembered.write_text(str(port))
    return port


def _settings(
    folder: Path,
    options: DevOptions,
    started: DevServices,
    deployment: Deployment,
    sandbox: Sandbox,
    hot_keys: dict[str, Path],
) -> Settings:
    identity, payments = sandbox.identity_policy(), sandbox.payments_policy()
    dns = sandbox.dns_policy()
    return Settings.model_validate(
        {
            "database_url": started.database_url,
            "redis_url": started.redis_url,
            "master_key_file": folder / "master.key",
            "explorer_url": sandbox.explorer_url,
            "node": {"rpc_url": started.rpc_url, "poll_seconds": POLL_SECONDS},
            "contracts": {
                "ltz": checksummed(deployment.address("LTZ")),
                "perk_nft": checksummed(deployment.address("PerkNFT")),
                "points_sale": checksummed(deployment.address("PointsSale")),
                "business_escrow": checksummed(deployment.address("BusinessEscrow")),
                "first_block": deployment.first_block,
            },
            "identity": {
                "base_url": identity.base_url,
                "app_id": identity.app_id,
                "app_secret": identity.app_secret,
                "signer_id": identity.signer_id,
                "signer_key": identity.signer_key,
            },
            "payments": {
                "base_url": payments.base_url,
                "secret_key": payments.secret_key,
                "signing_secret": payments.signing_secret,
            },
            "accounts": Accounts.of(sandbox.accounts_policy()),
            "chat": {"levels_url": sandbox.levels_url()},
            "site": {"base_url": sandbox.site_url},
            "dns": {"nameservers": list(dns.nameservers), "port": dns.port},
            "http": {
                "port": options.port,
                "own_origins": [f"http://127.0.0.1:{options.port}", sandbox.url],
            },
            "admin": {"port": options.admin_port},
            "operator": {**hot_keys, "max_in_flight": MAX_IN_FLIGHT},
        }
    )


def _welcome(instance: _Instance) -> str:
    base = instance.door["baseUrl"]
    event = json.dumps(
        {
            "brandId": instance.brand.brand_id,
            "eventType": "account_creation",
            "userEmail": f"ada@{instance.brand.domain}",
            "domain": instance.brand.domain,
        }
    )
    return f"""
ltzd is ready on {base}

  Earn a user some LTZ (a second time within 60 seconds is refused as a duplicate):
    curl -s {base}/service-api/manual-event -H 'Content-Type: application/json' -d '{event}'

  A site to try       {instance.sandbox.site_url}/
  API documentation   {base}/docs
  Explorer            {instance.sandbox.explorer_url}
  Sandbox             {instance.sandbox.url}
  Status              {instance.door["adminUrl"]}/status, or: {_status_command(instance.folder)}
  For programs        {instance.folder / door.NAME}

Ctrl-C stops everything.
"""


def _status_command(folder: Path) -> str:
    """What to type in another terminal, in the directory that this one is in."""
    here = Path.cwd()
    program = Path(sys.executable).with_name("ltzd")
    if shutil.which("ltzd") or not program.exists():
        program = Path("ltzd")
    elif program.is_relative_to(here):
        program = program.relative_to(here)
    place = "" if folder == (here / ".ltzd").resolve() else f" --data-dir {folder}"
    return f"{program} status --follow{place}"
