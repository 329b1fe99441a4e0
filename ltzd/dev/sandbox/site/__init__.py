"""The host site: a WordPress site with users, log-ins, its REST API, and a demo site on top.

`api` speaks WordPress's REST API over `sessions` and `users`. The `demo_` modules serve the demo
site and forward its loyalty requests to ltzd. `app` puts them together; begin there.
"""
