"""Warns of rewards that a brand's file leaves open, with the line that closes each.

The event handler demands no credential but for types with `signed`, and LTZ of one brand can be
spent at every brand, so a careless file costs all brands. An event that its sender repeats may be
rewarded twice, and one that its sender cannot sign is never rewarded.
"""

from collections.abc import Iterator

from ltzd.rules.brands.configuration import PER_DOLLAR_TYPE, Brand, EventRule

PAGE_METHODS = ("url_pattern", "success_selector")
"""The methods by which the tracker detects an event."""
REPEATS_SECONDS = 60
"""The WordPress plugin repeats an unanswered event within 45 seconds, the tracker within 30."""


def warnings(brand: Brand) -> list[str]:
    """A sentence for each opening, in a fixed order."""
    if not brand.automation:
        return []
    return [
        *_bypasses(brand),
        *_purchases(brand),
        *_endless(brand),
        *_repeated(brand),
        *_undetected(brand),
    ]


def _bypasses(brand: Brand) -> Iterator[str]:
    if brand.signed_bypass or all(rule.signed for rule in brand.configured_events()):
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
    rule = brand.rule_of(PER_DOLLAR_TYPE)
    if rule is None or rule.signed:
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
            f"Set {lines} in [brand], or `signed = true` for purchase, which the shop's server "
            "signs."
        )


def _endless(brand: Brand) -> Iterator[str]:
    if brand.daily_mint_budget:
        return
    types = [
        rule.type
        for rule in brand.configured_events()
        if not rule.signed
        and rule.max_total_claims is None
        and (rule.ltz or rule.reward_per_dollar)
    ]
    if types:
        yield (
            "Nothing limits what invented users may earn with "
            f"{', '.join(types)}: LTZ can be spent at every brand. Set `daily_mint_budget` in "
            "[brand], or `max_total_claims` or `signed = true` for each of these types."
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


def _undetected(brand: Brand) -> Iterator[str]:
    types = [
        rule.type
        for rule in brand.configured_events()
        if rule.signed and rule.detection_method in PAGE_METHODS
    ]
    if types:
        yield (
            f"No page can send {', '.join(types)}: the tracker cannot sign. Remove `signed`, or "
            "`detection_method` if the shop's server sends the event."
        )


def _rewards_repeats(rule: EventRule) -> bool:
    """Whether nothing refuses a repeated event: no cooldown, no maximum per user, and no nonce,
    which is the same in the plugin's repetitions."""
    has_reward = bool(rule.ltz or rule.reward_per_dollar)
    refuses = rule.max_claims_per_user == 1 or rule.cooldown_hours * 3_600 >= REPEATS_SECONDS
    return has_reward and not refuses and not rule.signed
