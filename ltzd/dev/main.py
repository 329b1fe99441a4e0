"""`ltzd dev`: starts the services, contracts, sandbox and demo data, then runs the daemon's roles.

SIGTERM and Ctrl-C stop everything within ten seconds. The services run in sessions of their own:
they survive a kill -9 of ltzd, and its next start adopts them.
"""

import asyncio
import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop
from msgspec.structs import replace

from ltzd.chain.contracts.offers import OfferContracts
from ltzd.chain.deployment.plan import Deployment
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc
from ltzd.concurrency.loggable_errors import first_cause
from ltzd.daemon import logs
from ltzd.daemon.main import run_roles
from ltzd.daemon.settings.accounts import AccountSettings
from ltzd.daemon.settings.settings import Settings
from ltzd.daemon.stop_signals import signals_blocked, stop_on_signals
from ltzd.dev import contracts, dev_json, wallets
from ltzd.dev.demo import brands, offers
from ltzd.dev.demo.brands import DemoBrand
from ltzd.dev.options import DevOptions
from ltzd.dev.sandbox.server import Sandbox
from ltzd.dev.services import data_dir, ports, supervisor
from ltzd.dev.services.supervisor import DevServices
from ltzd.errors import Misconfigured
from ltzd.http.payments.handlers import PAYMENT_WEBHOOK
from ltzd.rules.domains.customer_urls import is_loopback_host
from ltzd.rules.domains.txt_records import record_name
from ltzd.store import schema_revisions
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import checksummed, hash_of

POLL_SECONDS = 0.05


def run(options: DevOptions) -> None:
    """Run until SIGTERM or SIGINT. Raises Misconfigured with a sentence for the user."""
    with signals_blocked(), data_dir.locked(options.data_dir) as folder:
        uvloop.run(_run(folder, options))


async def _run(folder: Path, options: DevOptions) -> None:
    stop, ready = asyncio.Event(), asyncio.Event()
    stop_on_signals(stop)
    dev_json.remove(folder)
    if options.clean:
        await data_dir.empty(folder)
    if options.site_url is not None:
        check_site_url(options.site_url)
    options = _with_usable_ports(options)
    logs.configure()
    serving = asyncio.create_task(_serve(folder, options, stop, ready))
    cancelling = asyncio.create_task(_cancel_unfinished_start(serving, stop, ready))
    try:
        await serving
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    except BaseExceptionGroup as group:
        raise first_cause(group) from group
    finally:
        cancelling.cancel()
        dev_json.remove(folder)


def _with_usable_ports(options: DevOptions) -> DevOptions:
    """The options with a free port in place of each 0, so that `dev.json` names every port.

    Raises Misconfigured if a server cannot listen on a port, or if both servers would share one.
    """
    if options.port == options.admin_port != 0:
        raise Misconfigured(
            f"--port and --admin-port are both {options.port}; choose two different ports."
        )
    ports.check_free(options.port, "--port")
    ports.check_free(options.admin_port, "--admin-port")
    return replace(
        options,
        port=options.port or ports.free_port(),
        admin_port=options.admin_port or ports.free_port(),
    )


async def _cancel_unfinished_start(
    serving: asyncio.Task[None], stop: asyncio.Event, ready: asyncio.Event
) -> None:
    """Cancel a start that is under way at the stop; a ready instance watches `stop` itself."""
    await stop.wait()
    if not ready.is_set():
        serving.cancel()


async def _serve(
    folder: Path, options: DevOptions, stop: asyncio.Event, ready: asyncio.Event
) -> None:
    async with supervisor.running(folder, options) as services, AsyncExitStack() as stack:
        instance = await _set_up(folder, options, services, stack)
        await _run_roles(instance, stop, ready)


class _Instance(msgspec.Struct, frozen=True):
    folder: Path
    services: DevServices
    settings: Settings
    sandbox: Sandbox
    dev_json: dict[str, Any]
    brand: DemoBrand
    site_url: str


async def _run_roles(instance: _Instance, stop: asyncio.Event, ready: asyncio.Event) -> None:
    """Run the daemon's roles until the stop; fails when a service ends before that."""

    def announce() -> None:
        ready.set()
        dev_json.write(instance.folder, instance.dev_json)
        print(_welcome(instance), flush=True)

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(supervisor.watch(instance.folder, instance.services))
        await run_roles(instance.settings, stop, is_dev=True, on_ready=announce)
        watching.cancel()


async def _set_up(
    folder: Path, options: DevOptions, services: DevServices, stack: AsyncExitStack
) -> _Instance:
    """Create wallets, contracts, schema, sandbox, brands and settings, in this order."""
    minters = wallets.load_or_create_all(folder, "minter", options.mint_wallets)
    operators = wallets.load_or_create_all(folder, "operator", options.relay_wallets)
    mint_wallets = [signer.address for _, signer in minters]
    relay_wallets = [signer.address for _, signer in operators]
    _, admin = wallets.load_or_create(folder, "admin")
    _, business = wallets.load_or_create(folder, "business")
    async with Rpc(services.rpc_url) as rpc:
        await contracts.fund(rpc, Node(rpc), [*mint_wallets, *relay_wallets, admin.address])
        for minter in mint_wallets:
            terms = contracts.dev_terms(admin.address, minter, tuple(relay_wallets))
            deployment = await contracts.ensure_deployed(
                folder, rpc, services.chain_id, hash_of(services.genesis), admin, terms
            )
    await schema_revisions.migrate(services.database_url)
    sealer = Sealer.from_file(folder / "master.key", create=True)
    sandbox = await _started_sandbox(folder, options, services, deployment, stack)
    brand = await _demo_brand(folder, services, sealer, sandbox, "brand")
    other = await _demo_brand(folder, services, sealer, sandbox, "other_brand")
    async with Rpc(services.rpc_url) as rpc:
        offered = await offers.ensure(
            rpc, _offer_contracts(deployment), admin, brand.brand, business.address
        )
    content = {
        "baseUrl": f"http://127.0.0.1:{options.port}",
        "adminUrl": f"http://127.0.0.1:{options.admin_port}",
        "rpcUrl": services.rpc_url,
        "chainId": services.chain_id,
        "explorerUrl": sandbox.explorer_url,
        "databaseUrl": services.database_url,
        "redisUrl": services.redis_url,
        "sandboxUrl": sandbox.url,
        "operator": checksummed(relay_wallets[0]),
        "operators": list(map(checksummed, relay_wallets)),
        "minter": checksummed(mint_wallets[0]),
        "minters": list(map(checksummed, mint_wallets)),
        "contracts": {
            name: checksummed(placed.address) for name, placed in deployment.contracts.items()
        },
        "brand": brand.section,
        "otherBrand": other.section,
        **offered,
        "site": sandbox.site_section(),
        "payments": sandbox.payments_section(),
        "sandbox": sandbox.control_endpoints(),
    }
    hot_keys = _hot_keys([path for path, _ in minters], [path for path, _ in operators])
    settings = _settings(folder, options, services, deployment, sandbox, hot_keys)
    site_url = options.site_url or sandbox.site_url
    return _Instance(folder, services, settings, sandbox, content, brand, site_url.rstrip("/"))


async def _started_sandbox(
    folder: Path,
    options: DevOptions,
    services: DevServices,
    deployment: Deployment,
    stack: AsyncExitStack,
) -> Sandbox:
    port = _sandbox_port(folder)
    sandbox = Sandbox(folder, port, services.rpc_url, deployment.address("LTZ"))
    sandbox.set_payment_events_url(f"http://127.0.0.1:{options.port}{PAYMENT_WEBHOOK}")
    sandbox.set_ltzd_url(f"http://127.0.0.1:{options.port}")
    await sandbox.start()
    stack.push_async_callback(sandbox.stop)
    return sandbox


async def _demo_brand(
    folder: Path, services: DevServices, sealer: Sealer, sandbox: Sandbox, name: str
) -> DemoBrand:
    """Apply a demo brand once and publish its domain's verification record in the sandbox."""
    brand = await brands.apply(folder, services.database_url, sealer, name, sandbox.inbox_url)
    record = f"brand_id={brand.brand_id};api_key={brand.section['verificationToken']}"
    await sandbox.set_txt(record_name(brand.domain), [record])
    return brand


def _offer_contracts(deployment: Deployment) -> OfferContracts:
    return OfferContracts(
        deployment.address("PerkNFT"),
        deployment.address("PointsSale"),
        deployment.address("BusinessEscrow"),
        deployment.first_block,
    )


def check_site_url(url: str) -> None:
    """Raises Misconfigured for a site of another machine: members' log-ins are sent to it."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        is_usable = False
    if (
        not is_usable
        or not is_loopback_host(parts.hostname or "")
        or not url.isprintable()
        or set("@?#{ ") & set(url)
    ):
        raise Misconfigured(
            "--site-url must be the URL of a site on this machine, such as "
            "http://127.0.0.1:8080 or http://127.0.0.1:8080/blog."
        )


def _sandbox_port(folder: Path) -> int:
    """The port of the last start while it is free, so that open pages stay valid."""
    remembered = folder / "sandbox.port"
    port = data_dir.read_number(remembered)
    if port and ports.is_free(port):
        return port
    port = ports.free_port()
    remembered.write_text(str(port))
    return port


def _hot_keys(minters: Sequence[Path], operators: Sequence[Path]) -> dict[str, Any]:
    """The keys of the section `operator`: more wallets follow the first one of each kind."""
    more = [{"kind": "mint", "key_file": path} for path in minters[1:]]
    more += [{"kind": "relay", "key_file": path} for path in operators[1:]]
    keys: dict[str, Any] = {"minter_key_file": minters[0], "relay_key_file": operators[0]}
    return keys | {"wallets": more}


def _settings(
    folder: Path,
    options: DevOptions,
    services: DevServices,
    deployment: Deployment,
    sandbox: Sandbox,
    hot_keys: dict[str, Any],
) -> Settings:
    identity, payments = sandbox.identity_policy(), sandbox.payments_policy()
    dns = sandbox.dns_policy()
    return Settings.model_validate(
        {
            "database_url": services.database_url,
            "redis_url": services.redis_url,
            "master_key_file": folder / "master.key",
            "explorer_url": sandbox.explorer_url,
            "node": {
                "urls": services.rpc_urls,
                "chain_id": services.chain_id,
                "poll_seconds": POLL_SECONDS,
            },
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
            "accounts": AccountSettings.of(sandbox.accounts_policy()),
            "chat": {"levels_url": sandbox.levels_url()},
            "site": {"base_url": options.site_url or sandbox.site_url},
            "dns": {"nameservers": list(dns.nameservers), "port": dns.port},
            "http": {
                "port": options.port,
                "own_origins": [f"http://127.0.0.1:{options.port}", sandbox.url],
            },
            "admin": {"port": options.admin_port},
            "operator": {**hot_keys, "max_in_flight": options.max_in_flight},
        }
    )


def _welcome(instance: _Instance) -> str:
    base = instance.dev_json["baseUrl"]
    event = json.dumps(
        {
            "brandId": instance.brand.brand_id,
            "eventType": "account_creation",
            "userEmail": f"ada@{instance.brand.domain}",
            "domain": instance.brand.domain,
        }
    )
    admin_url = instance.dev_json["adminUrl"]
    return f"""
ltzd is ready on {base}

  Earn a user some LTZ (a second time within 60 seconds is refused as a duplicate):
    curl -s {base}/service-api/manual-event -H 'Content-Type: application/json' -d '{event}'

  Demo site           {instance.site_url}/
  API documentation   {base}/docs
  Explorer            {instance.sandbox.explorer_url}
  Sandbox             {instance.sandbox.url}
  Status              {admin_url}/status, or: {status_command(instance.folder)}
  For programs        {instance.folder / dev_json.NAME}

Press Ctrl-C to stop everything.
"""


def status_command(folder: Path) -> str:
    """The `ltzd status` command as typed in another terminal in the same directory."""
    here = Path.cwd()
    program = Path(sys.executable).with_name("ltzd")
    if shutil.which("ltzd") or not program.exists():
        program = Path("ltzd")
    elif program.is_relative_to(here):
        program = program.relative_to(here)
    option = [] if folder == (here / ".ltzd").resolve() else ["--data-dir", str(folder)]
    return shlex.join([str(program), "status", "--follow", *option])
