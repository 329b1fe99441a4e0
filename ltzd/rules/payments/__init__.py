"""Rules of payments: which checkout sessions are minted, and what refunds and disputes undo.

Begin with `sessions`. `provider_events` reads the payment provider's signed events, and `reversals`
records each refund and dispute once. Money is in whole US cents, LTZ in whole LTZ; a dollar buys
1,000. A text of the provider is kept only if it matches a pattern, so no other text reaches the
database.
"""
