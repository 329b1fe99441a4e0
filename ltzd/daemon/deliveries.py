"""Builds the role deliveries: the sender of webhooks, and the periodic work."""

import msgspec

from ltzd.concurrency.kept_loops import Loop
from ltzd.daemon.settings.settings import Settings
from ltzd.deliveries.chat_recheck_loop import ChatRecheckLoop
from ltzd.deliveries.cleanup import Cleanup
from ltzd.deliveries.redemption_recheck import RedemptionRecheck
from ltzd.deliveries.sender import Sender
from ltzd.providers.brand_webhooks import BrandWebhooks
from ltzd.providers.chat import ChatPlatform
from ltzd.store.database import Pool
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.operator.leases import Leases
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.wakeups import WakeupHub


class DeliveriesRole(msgspec.Struct, frozen=True):
    """`chat_recheck` is None if no chat platform is configured."""

    sender: Sender
    cleanup: Cleanup
    chat_recheck: ChatRecheckLoop | None
    redemption_recheck: RedemptionRecheck

    def loops(self) -> list[tuple[str, Loop]]:
        loops: list[tuple[str, Loop]] = [
            ("webhooks", self.sender.run),
            ("cleanup", self.cleanup.run),
            ("redemption_recheck", self.redemption_recheck.run),
        ]
        if self.chat_recheck is not None:
            loops.append(("chat_recheck", self.chat_recheck.run))
        return loops


def build_deliveries(
    settings: Settings,
    pool: Pool,
    leases: Leases,
    wakeups: WakeupHub,
    sealer: Sealer,
    erased: ErasedAddresses,
    brands_servers: BrandWebhooks,
    platform: ChatPlatform | None,
) -> DeliveriesRole:
    return DeliveriesRole(
        Sender(pool, wakeups, sealer, brands_servers),
        Cleanup(pool, erased, settings.retention.policy()),
        None if platform is None else ChatRecheckLoop(pool, leases, platform),
        RedemptionRecheck(pool, wakeups),
    )
