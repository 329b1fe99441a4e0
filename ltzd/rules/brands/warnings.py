"""Warns of rewards that a brand's file leaves open, with the line that closes each.

The event handler demands no credential, and LTZ of one brand can be spent at every brand, so a
careless file costs all brands. An event that its sender repeats may be rewarded twice.
"""

from collections.abc import Iterator

from ltzd.rules.brands.configuration import PER_DOLLAR_TYPE, Brand, EventRule

REPEATS_SECONDS = 60
"""The WordPress plugin repeats an unanswered event within 45 seconds, the tracker within 30."""


def warnings(brand: Brand) -> list[str]:
    """A sentence for each opening, in a fixed order."""
    if not brand.automation:
        return []
    return [*_bypasses(brand), *_purchases(brand), *_endless(brand), *_repeated(brand)]


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


def _repeated(brand: Brand) -> Iterator[str]:
    if brand.duplicate_window_seconds >= REPEATS_SECONDS:
        return
    types = [rule.type for rule in brand.configured_events() if _rewards_repeats(rule)]
    if types:
        yield (
            f"An event whose answer is lost may be rewarded twice ({', '.join(types)}): the "
            "WordPress plugin repeats it for up to 45 seconds, and the tracker for up to 30. Set "
            f"`duplicate_window_seconds = {REPEATS_SECONDS}` in [brand]."
        )


def _rewards_repeats(rule: EventRule) -> bool:
    """Whether neither the rule's cooldown nor its maximum per user refuses a repeated event."""
    has_reward = bool(rule.ltz or rule.reward_per_dollar)
    refuses = rule.max_claims_per_user == 1 or rule.cooldown_hours * 3_600 >= REPEATS_SECONDS
    return has_reward and not refuses
