"""`ltzd collection`, `ltzd item` and `ltzd business`: what the REGISTRAR offers on chain.

Begin with `commands`, the table of all commands and their options. `options` validates the values,
`changes` turns them into contract calls, `transaction_sender` signs and sends a call, or prints it
unsigned, and `views` shows the current offers.
"""
