"""Warns of rewards that a brand's file leaves open to anybody, with the line that closes each.

The event handler demands no credential, and LTZ of one brand can be spent at every brand, so a
careless file costs all brands.
"""

from collections.abc import Iterator

from ltzd.rules.brands.configuration import PER_DOLLAR_TYPE, Brand


def warnings(brand: Brand) -> list[str]:
    """A sentence for each opening, in a fixed order."""
    if not brand.automation:
        return []
    return [*_bypasses(brand), *_purchases(brand), *_endless(brand)]


def _bypasses(brand: Brand) -> Iterator[str]:
    if brand.signed_bypass:
        return
    sources = ", ".join(brand.bypass_sources)
    if sources:
        yield (
            "Anybody can send events without cooldown and without a maximum per user: the bypass "
            f"sources ({sources}) and metadata.skip_cooldown need no signature. Set "
            "`signed_bypass = true` in [brand]."
        )
    else:
        yield (
            "Anybody can send events without cooldown: metadata.skip_cooldown needs no signature. "
            "Set `signed_bypass = true` in [brand]."
        )


def _purchases(brand: Brand) -> Iterator[str]:
    if brand.rule_of(PER_DOLLAR_TYPE) is None:
        return
    missing = [
        name
        for name, limit in (
            ("max_reward_per_event", brand.max_reward_per_event),
            ("daily_mint_budget", brand.daily_mint_budget),
        )
        if limit == 0
    ]
    if missing:
        lines = " and ".join(f"`{name}`" for name in missing)
        yield (
            "Anybody can send a `purchase` of up to 1,000,000 dollars: no signature is required. "
            f"Set {lines} in [brand]."
        )


def _endless(brand: Brand) -> Iterator[str]:
    if brand.daily_mint_budget:
        return
    types = [
        rule.type
        for rule in brand.configured_events()
        if rule.max_total_claims is None and (rule.ltz or rule.reward_per_dollar)
    ]
    if types:
        yield (
            "Nothing limits what invented users may earn with "
            f"{', '.join(types)}: LTZ can be spent at every brand. Set `daily_mint_budget` in "
            "[brand], or `max_total_claims` for each of these types."
        )
