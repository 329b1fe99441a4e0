"""The HTTP servers: one package per surface of the specification, and what surrounds a request.

Begin in `app.py`, which builds the public application from its surfaces: `event_handler`,
`payments`, `relayer`, `perk_charges`, `pregeneration`, `constraints` and `site_plugin`. Each of
these packages has `handlers.py`, `models.py`, `errors.py` (the surface's error body) and
`operations.py` (its part of the OpenAPI document). `services.py` lists what handlers call,
`errors.py` gives every exception its status and code, `requests` reads requests, `openapi` writes
the document, and `admin` is the operator's server. `server.py` runs an application inside ltzd's
event loop.
"""
