"""Builds the role operator: the fleet of lanes, and the keys that the settings name."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from typing import Any

import msgspec
import structlog

from ltzd import telemetry
from ltzd.chain.node.node import Node
from ltzd.chain.signing import WalletSigner
from ltzd.concurrency.kept_loops import Loop
from ltzd.daemon.settings.settings import OperatorSettings, Settings
from ltzd.daemon.settings.wallets import NamedWallet, signer_of
from ltzd.daemon.signers import open_signer
from ltzd.errors import Misconfigured, SignerUnavailable
from ltzd.operator.fleet.fleet import FleetParts, LaneFleet, SettingsWallet, SignerOpening
from ltzd.operator.fleet.slot import FleetLane
from ltzd.operator.fleet.wallet_rights import WalletRightsWatch
from ltzd.operator.mints.lane import MintLane
from ltzd.operator.policy import MINT, TREASURY, InProcessHooks, LanePolicy, MintTarget, RelayTarget
from ltzd.operator.relays.lane import RelayLane
from ltzd.operator.retired.lane import RetiredLane
from ltzd.operator.treasury.lane import TreasuryLane
from ltzd.rules.operator.top_ups import TopUpPolicy
from ltzd.store.database import Pool
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.operator.leases import Leases
from ltzd.store.operator.wallets import OperatorWallet
from ltzd.store.relayer.direct_lanes import DirectLanes
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Address

log = structlog.get_logger()


class OperatorRole(msgspec.Struct, frozen=True):
    fleet: LaneFleet
    wallet_rights: WalletRightsWatch

    def loops(self) -> list[tuple[str, Loop]]:
        return [("fleet", self.fleet.run), ("wallet_rights", self.wallet_rights.run)]


class FleetDependencies(msgspec.Struct, frozen=True):
    pool: Pool
    leases: Leases
    node: Node
    chain: ChainIdentity
    wakeups: WakeupHub
    hooks: InProcessHooks
    direct_lanes: DirectLanes
    is_dev: bool = False


async def build_operator(
    settings: Settings,
    dependencies: FleetDependencies,
    stack: AsyncExitStack,
    wallets: Sequence[SettingsWallet] | None = None,
) -> OperatorRole:
    """`stack` closes the signers.

    `wallets` are those of `open_wallets`, if the caller has opened them. Raises Misconfigured for a
    key that a person must correct. The fleet opens a remote signer that is away later.
    """
    pool, chain, wakeups = dependencies.pool, dependencies.chain, dependencies.wakeups
    if wallets is None:
        wallets = await open_wallets(settings.operator, stack)
    policy = LanePolicy(
        max_in_flight=settings.operator.max_in_flight,
        fees=settings.operator.fees(),
        balance_floors=settings.operator.balance_floors(),
        adopts_wallets=dependencies.is_dev,
    )
    top_ups = settings.operator.top_ups()
    _set_gauges(policy, top_ups)
    target = MintTarget(chain.chain_id, chain.ltz)
    relay_target = RelayTarget(chain.chain_id, settings.contracts.by_contract())
    leases, node = dependencies.leases, dependencies.node

    def lane(kind: str, signer: WalletSigner) -> FleetLane:
        if kind == MINT:
            hooks = dependencies.hooks
            return MintLane(pool, leases, node, signer, target, wakeups, policy, hooks)
        if kind == TREASURY:
            assert top_ups is not None, "only the settings name a treasury"
            return TreasuryLane(
                pool, leases, node, signer, chain.chain_id, wakeups, policy, top_ups
            )
        return RelayLane(
            pool, leases, node, signer, relay_target, wakeups, policy, dependencies.direct_lanes
        )

    def grow_pool(lanes: int) -> None:
        pool.grow(settings.database.policy().operator_size(lanes))

    def watch(row: OperatorWallet) -> FleetLane:
        return RetiredLane(pool, leases, node, row.wallet, row.kind, target, wakeups, policy)

    parts = FleetParts(open_signer=_open_of_row, lane=lane, watch=watch, on_size=grow_pool)
    fleet = LaneFleet(pool, chain.chain_id, wakeups, wallets, parts)

    def held() -> list[tuple[Address, str]]:
        return [(lane.wallet, lane.kind) for lane in fleet.lanes if lane.is_serving]

    contracts = settings.contracts.by_contract()
    return OperatorRole(fleet, WalletRightsWatch(node, contracts, held))


async def open_wallets(settings: OperatorSettings, stack: AsyncExitStack) -> list[SettingsWallet]:
    """Open the keys of all wallets that the settings name. Raises as `build_operator` does.

    Decrypting a keystore takes about a second, so all are opened at once.
    """
    wallets, faults = await try_wallets(settings, stack)
    if faults:
        raise Misconfigured(faults[0])
    return wallets


async def try_wallets(
    settings: OperatorSettings, stack: AsyncExitStack
) -> tuple[list[SettingsWallet], list[str]]:
    """As `open_wallets`, but returns the wallets that opened, and a sentence for each fault."""
    results = await asyncio.gather(
        *(_opened(wallet, stack) for wallet in settings.named_wallets()), return_exceptions=True
    )
    wallets, faults = [], []
    for result in results:
        if isinstance(result, SettingsWallet):
            wallets.append(result)
        elif isinstance(result, Misconfigured):
            faults.append(result.message)
        else:
            raise result
    try:
        _refuse_doubles(wallets)
    except Misconfigured as error:
        faults.append(error.message)
    return wallets, faults


async def _opened(wallet: NamedWallet, stack: AsyncExitStack) -> SettingsWallet:
    """Open the wallet's signer to learn its address; a remote one may be away now."""
    try:
        signer = await stack.enter_async_context(open_signer(wallet.signer))
    except SignerUnavailable as error:
        log.error("wallet.signer_away", wallet=wallet.setting, reason=error.message)
        return SettingsWallet(wallet.setting, wallet.kind, lambda: open_signer(wallet.signer))
    except Misconfigured as error:
        raise Misconfigured(f"{wallet.setting}: {error.message}") from error
    return SettingsWallet(wallet.setting, wallet.kind, lambda: nullcontext(signer), signer.address)


def _set_gauges(policy: LanePolicy, top_ups: TopUpPolicy | None) -> None:
    for kind, floor in policy.balance_floors.items():
        telemetry.BALANCE_FLOOR_WEI.labels(kind).set(floor)
    telemetry.TREASURY_DAY_LIMIT_WEI.set(0 if top_ups is None else top_ups.max_wei_per_day)


def _refuse_doubles(wallets: Sequence[SettingsWallet]) -> None:
    """Raises Misconfigured if two settings name the same wallet."""
    seen: dict[Address, SettingsWallet] = {}
    for wallet in wallets:
        if wallet.address is None:
            continue
        other = seen.setdefault(wallet.address, wallet)
        if other is wallet:
            continue
        places = f"{other.setting} and {wallet.setting} hold the same key: "
        if other.kind == wallet.kind:
            raise Misconfigured(f"{places}name each wallet once.")
        if TREASURY in {other.kind, wallet.kind}:
            raise Misconfigured(f"{places}the treasury must have a key of its own.")
        raise Misconfigured(f"{places}the wallet that relays users' calls must not mint.")


def _open_of_row(reference: Mapping[str, Any]) -> SignerOpening:
    return open_signer(signer_of(reference))
