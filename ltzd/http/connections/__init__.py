"""Bounds what connections cost: their number, slow heads and bodies, answers that nobody reads.

`protocol.py` is Sanic's protocol with these bounds, `tls.py` makes TLS handshakes before it,
`limit.py` keeps the open connections and ends the least useful ones, `sweep.py` checks all of them
every second, `pace.py` slows the reading of refused ones.
"""
