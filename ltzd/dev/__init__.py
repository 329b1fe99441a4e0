"""`ltzd dev`: the whole platform on one machine, for development and tests.

`main` starts everything in order and runs the daemon's roles. `services` are the processes below it
(PostgreSQL, Redis, a dev chain), `tester_chain` is a dev chain in pure Python, `contracts` deploys
to the chain, `sandbox` stands in for the outside services
(`sandbox_process` runs it alone, for staging), and `demo` holds two brands, their
offers and the demo site. Begin with `main`. Production never imports this package.
"""
