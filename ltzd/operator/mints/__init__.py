"""The mint lane: signs queued rewards in batches, within LTZ's mint limit.

`lane` begins a term and checks the references of rewards, `claims` takes rewards from the queue
that all mint lanes share, `signer` builds and signs a batch, `limit` tracks how much LTZ lets the
lane mint now, `gas` how much gas a mint may use, `simulation` finds rewards that LTZ would refuse,
and `batch` encodes the call. Begin with `signer`.
"""
