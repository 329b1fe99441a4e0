"""The LTZ that a site session may spend: its own, once, and no more than the balance."""

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from ltzd.errors import RedemptionRefused
from ltzd.rules.site_plugin.spending import (
    AddressFacts,
    Allowance,
    PotAmounts,
    SpendingRecord,
    available_pots,
    is_address_trusted,
    pay,
    payment_of,
)
from ltzd.values import LTZ

AMOUNTS = st.integers(0, 1_000)
LEDGERS = st.builds(
    SpendingRecord,
    earned=AMOUNTS,
    given_in_all=AMOUNTS,
    spent_of_earned=AMOUNTS,
    spent_in_all=AMOUNTS,
    allowance=st.none() | st.builds(Allowance, per_day=AMOUNTS, charged=AMOUNTS),
)


@given(LEDGERS, st.booleans(), AMOUNTS)
def test_no_share_is_negative_and_their_sum_is_at_most_the_balance(
    ledger: SpendingRecord, believed: bool, balance: int
) -> None:
    allowed = available_pots(ledger, believed=believed, balance=balance)
    assert min(allowed.earned, allowed.given, allowed.linked) >= 0
    assert allowed.total <= balance


RECORD = SpendingRecord(
    earned=40,
    given_in_all=100,
    spent_of_earned=10,
    spent_in_all=25,
    allowance=Allowance(per_day=50, charged=20),
)


@pytest.mark.parametrize(
    ("record", "believed", "balance", "pots"),
    [
        (RECORD, True, 1_000, PotAmounts(earned=30, given=45, linked=30)),
        (RECORD, False, 1_000, PotAmounts(earned=30, given=0, linked=30)),
        (RECORD, True, 90, PotAmounts(earned=30, given=45, linked=15)),
        (RECORD, True, 60, PotAmounts(earned=30, given=30)),
        (RECORD, False, 20, PotAmounts(earned=20)),
        (replace(RECORD, allowance=None), True, 1_000, PotAmounts(earned=30, given=45)),
        # Another member has spent nearly everything that the brand gave.
        (replace(RECORD, spent_in_all=95), True, 1_000, PotAmounts(earned=5, linked=30)),
        (replace(RECORD, spent_in_all=101), True, 1_000, PotAmounts(linked=30)),
        (replace(RECORD, spent_of_earned=41), False, 1_000, PotAmounts(linked=30)),
        # The owner has lowered the allowance of a day that was used.
        (replace(RECORD, allowance=Allowance(10, 20)), False, 1_000, PotAmounts(earned=30)),
    ],
)
def test_each_pot_holds_what_is_left_of_it(
    record: SpendingRecord, believed: bool, balance: int, pots: PotAmounts
) -> None:
    assert available_pots(record, believed=believed, balance=balance) == pots


@pytest.mark.parametrize(
    ("price", "payment"),
    [
        (30, PotAmounts(earned=30)),
        (50, PotAmounts(earned=30, given=20)),
        (80, PotAmounts(earned=30, given=45, linked=5)),
        (105, PotAmounts(earned=30, given=45, linked=30)),
        (106, None),
    ],
)
def test_the_pots_pay_a_price_in_their_order(price: int, payment: PotAmounts | None) -> None:
    assert payment_of(price, PotAmounts(earned=30, given=45, linked=30)) == payment


@given(LEDGERS, AMOUNTS)
def test_a_site_that_is_not_believed_may_spend_earned_and_linked_ltz_only(
    ledger: SpendingRecord, balance: int
) -> None:
    allowed = available_pots(ledger, believed=False, balance=balance)
    assert allowed.given == 0
    assert allowed.earned <= max(0, ledger.earned - ledger.spent_of_earned)
    assert allowed.linked <= (0 if ledger.allowance is None else ledger.allowance.left)


@given(LEDGERS, st.booleans(), AMOUNTS, AMOUNTS)
def test_a_price_is_paid_whole_and_from_the_first_pots_first(
    ledger: SpendingRecord, believed: bool, balance: int, price: int
) -> None:
    allowed = available_pots(ledger, believed=believed, balance=balance)
    payment = payment_of(price, allowed)
    if payment is None:
        assert price > allowed.total
        return
    assert payment.total == price <= allowed.total
    assert payment.earned <= allowed.earned
    assert payment.given <= allowed.given
    assert payment.linked <= allowed.linked
    assert payment.given == 0 or payment.earned == allowed.earned
    assert payment.linked == 0 or payment.given == allowed.given


@given(LEDGERS, st.booleans(), AMOUNTS)
def test_a_free_offer_needs_no_right_to_spend(
    ledger: SpendingRecord, believed: bool, balance: int
) -> None:
    allowed = available_pots(ledger, believed=believed, balance=balance)
    assert pay(0, allowed, is_linked=ledger.allowance is not None) == PotAmounts()


@pytest.mark.parametrize(
    ("confirmed", "verified_emails", "believed"),
    [
        (None, True, True),
        (None, False, False),
        (True, False, True),
        (True, True, True),
        (False, True, False),
        (False, False, False),
    ],
)
def test_a_sites_confirmation_of_a_member_overrides_the_operators_setting(
    confirmed: bool | None, verified_emails: bool, believed: bool
) -> None:
    address = AddressFacts(confirmed, is_proven=False, leads_to_wallet=True)
    assert is_address_trusted(address, verified_emails=verified_emails) is believed


@given(st.none() | st.booleans(), st.booleans())
def test_no_confirmation_makes_a_proven_address_or_a_linked_wallet_trusted(
    confirmed: bool | None, verified_emails: bool
) -> None:
    for address in (
        AddressFacts(confirmed, is_proven=True, leads_to_wallet=True),
        AddressFacts(confirmed, is_proven=False, leads_to_wallet=False),
    ):
        assert not is_address_trusted(address, verified_emails=verified_emails)


def test_a_missing_amount_is_reported_with_the_way_to_obtain_it() -> None:
    with pytest.raises(RedemptionRefused) as refused:
        pay(30 * LTZ, PotAmounts(earned=10 * LTZ, given=5 * LTZ // 2), is_linked=False)
    assert refused.value.message == (
        "This perk costs 30 LTZ, but this site may spend only 12.5 LTZ of your wallet. "
        "Link your wallet to use more of it."
    )
    with pytest.raises(RedemptionRefused) as refused:
        pay(30 * LTZ, PotAmounts(linked=20 * LTZ), is_linked=True)
    assert refused.value.message == (
        "This perk costs 30 LTZ, but your link lets this site spend only 20 LTZ now. "
        "Please try again tomorrow, or link your wallet again with a higher daily allowance."
    )


# --- one wallet, many members, any order ------------------------------------------------------


@dataclass
class Account:
    """The payments of a member of the wallet. `linked` has the charges of each day."""

    believed: bool
    allowance: int | None
    earned: int = 0
    payments: list[PotAmounts] = field(default_factory=list)
    linked: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class OneWallet(RuleBasedStateMachine):
    """Random events of a wallet at one brand's sites, in any order."""

    members: Bundle[Account] = Bundle("members")

    @initialize()
    def begin(self) -> None:
        self.day = 0
        self.given = 0
        self.others = 0
        self.accounts: list[Account] = []

    @rule(target=members, believed=st.booleans(), allowance=st.none() | st.integers(0, 100))
    def joins(self, believed: bool, allowance: int | None) -> Account:
        account = Account(believed, allowance)
        self.accounts.append(account)
        return account

    @rule(account=members, ltz=st.integers(0, 50), own=st.integers(0, 50))
    def checks_in(self, account: Account, ltz: int, own: int) -> None:
        account.earned += min(ltz, own)
        self.given += ltz

    @rule(ltz=st.integers(0, 100), by_brand=st.booleans())
    def receives(self, ltz: int, by_brand: bool) -> None:
        if by_brand:
            self.given += ltz
        else:
            self.others += ltz

    @rule()
    def sleeps(self) -> None:
        self.day += 1

    @rule(account=members)
    def loses_or_gets_a_link(self, account: Account) -> None:
        account.allowance = 50 if account.allowance is None else None
        account.linked.clear()

    @rule(account=members, price=st.integers(0, 120), fails=st.booleans())
    def redeems(self, account: Account, price: int, fails: bool) -> None:
        allowed = available_pots(
            self.ledger(account), believed=account.believed, balance=self.balance
        )
        payment = payment_of(price, allowed)
        if payment is None or fails:
            return  # a failed redemption's row counts nowhere
        account.payments.append(payment)
        account.linked[self.day] += payment.linked

    def ledger(self, account: Account) -> SpendingRecord:
        allowance = None
        if account.allowance is not None:
            allowance = Allowance(account.allowance, account.linked[self.day])
        return SpendingRecord(
            earned=account.earned,
            given_in_all=self.given,
            spent_of_earned=sum(payment.earned for payment in account.payments),
            spent_in_all=sum(
                payment.earned + payment.given
                for each in self.accounts
                for payment in each.payments
            ),
            allowance=allowance,
        )

    @property
    def balance(self) -> int:
        spent = sum(payment.total for each in self.accounts for payment in each.payments)
        return self.given + self.others - spent

    @invariant()
    def nothing_is_spent_twice(self) -> None:
        if not hasattr(self, "accounts"):
            return
        payments = [payment for account in self.accounts for payment in account.payments]
        assert self.balance >= 0
        assert sum(payment.earned + payment.given for payment in payments) <= self.given
        for account in self.accounts:
            assert sum(payment.earned for payment in account.payments) <= account.earned
            assert account.believed or not any(payment.given for payment in account.payments)
            for charged in account.linked.values():
                assert charged <= (account.allowance or 0)


TestOneWallet = OneWallet.TestCase
