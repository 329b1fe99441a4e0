"""Judges the facts that `ltzd doctor` reads, each in a sentence that says what to do.

Units: LTZ, seconds, bytes.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ltzd.rules.brands.configuration import Brand
from ltzd.rules.brands.warnings import warnings
from ltzd.rules.checks.findings import Finding, ok, warning

_DAY_SECONDS = 86_400
_GIB = 2**30
_LEAST_FREE_PART = 0.1
_ARCHIVE_SECONDS = 3600
_EXPIRY_DAYS = 21
_OLDEST_POSTGRESQL = 140_000


class WalletMintLimit(msgspec.Struct, frozen=True):
    """A mint wallet's limit on chain: `capacity_ltz` refills in `window_seconds`."""

    wallet: str
    capacity_ltz: int
    window_seconds: int

    @property
    def ltz_a_day(self) -> int:
        return self.capacity_ltz * _DAY_SECONDS // max(1, self.window_seconds)


def on_brands(brands: Iterable[Brand]) -> Iterator[Finding]:
    """Rewards that a brand leaves open to anybody: unsigned bypasses, `purchase`, no budget."""
    count = 0
    for brand in brands:
        for sentence in warnings(brand):
            count += 1
            yield warning("brands", f"{brand.name}: {sentence}")
    if not count:
        yield ok("brands", "No brand leaves rewards open to anybody.")


def on_mint_limits(
    limits: Iterable[WalletMintLimit], budgets: Mapping[str, int]
) -> Iterator[Finding]:
    """Compare what the wallets may mint in a day with what the brands, by name, may give away."""
    known = list(limits)
    if not known:
        return
    may_mint, may_give = sum(each.ltz_a_day for each in known), sum(budgets.values())
    endless = sorted(name for name, budget in budgets.items() if budget == 0)
    if endless:
        yield warning(
            "mint_limit",
            f"{', '.join(endless)} may give away LTZ without a daily budget, but all wallets "
            f"together may mint {may_mint} LTZ a day, which one brand could spend: set "
            "`daily_mint_budget` in the brand's file.",
        )
    if may_give > may_mint:
        yield warning(
            "mint_limit",
            f"The brands may give away {may_give} LTZ a day, but all wallets together may mint "
            f"only {may_mint}, so that rewards would wait: raise the limit (`ltzd wallet grant … "
            "--mint-limit LTZ`), add a mint wallet, or lower the brands' budgets.",
        )
    elif not endless:
        yield ok(
            "mint_limit",
            f"The wallets may mint {may_mint} LTZ a day, the brands may give away {may_give}.",
        )


def on_backups(
    *, archives: bool, seconds_since_archived: float | None, has_failed: bool, standbys: int
) -> Finding:
    if has_failed:
        return warning(
            "backups",
            "PostgreSQL's last archive_command has failed, so the backup grows old and the disk "
            "fills with WAL: look into PostgreSQL's log, and correct the command.",
        )
    if archives and seconds_since_archived is None:
        return warning(
            "backups",
            "PostgreSQL archives WAL, but has archived nothing yet: run `SELECT pg_switch_wal()` "
            "and look whether the file arrives.",
        )
    if archives and seconds_since_archived is not None:
        if seconds_since_archived <= _ARCHIVE_SECONDS:
            return ok("backups", f"WAL was archived {seconds_since_archived:.0f} s ago.")
        return warning(
            "backups",
            f"WAL was last archived {seconds_since_archived / 3600:.0f} h ago: set archive_timeout "
            "= 60 in PostgreSQL, or look whether the archive still works.",
        )
    if standbys:
        return warning(
            "backups",
            f"PostgreSQL archives no WAL and has only standbys ({standbys}), which delete a row "
            "when the primary does: archive WAL, too (docs/operations.md, Backups).",
        )
    return warning(
        "backups",
        "PostgreSQL archives no WAL and has no standby: the loss of its disk loses every event "
        "since the last dump. Set archive_mode = on (docs/operations.md, Backups).",
    )


def on_disk(place: str, free_bytes: int, total_bytes: int) -> Finding:
    shown = (
        f"{free_bytes / _GIB:.1f} of {total_bytes / _GIB:.1f} GiB are free on the disk of {place}"
    )
    if free_bytes < _LEAST_FREE_PART * total_bytes:
        return warning("disk", f"Only {shown}: make room before PostgreSQL must stop.")
    return ok("disk", f"{shown}.")


def on_certificate(server: str, seconds_left: float) -> Finding:
    days = seconds_left / _DAY_SECONDS
    if days < _EXPIRY_DAYS:
        state = f"expires in {days:.0f} days" if days > 0 else "has expired"
        return warning(
            "certificates",
            f"The certificate of the {server} server {state}: renew it, and send ltzd SIGHUP.",
        )
    return ok("certificates", f"The certificate of the {server} server has {days:.0f} days left.")


def on_versions(own: str, running: Mapping[str, str]) -> Finding:
    """`running` holds the version of each process by its name."""
    others = sorted(f"{name} {version}" for name, version in running.items() if version != own)
    if others:
        return warning(
            "versions",
            f"This ltzd is {own}, but other processes run another version: {', '.join(others)}. "
            "Finish the upgrade.",
        )
    return ok("versions", f"All {len(running)} running processes have version {own}.")


def on_postgresql(version: int, shown: str) -> Finding:
    if version < _OLDEST_POSTGRESQL:
        return warning("versions", f"PostgreSQL {shown} is too old: upgrade to 14 or later.")
    return ok("versions", f"PostgreSQL is {shown}.")
