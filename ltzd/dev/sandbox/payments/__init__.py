"""The payment provider: checkout sessions, refunds, disputes, signed events and hosted pages.

`api` speaks the vendor's API, `pages` are the hosted pages, and `control` pays for tests. All three
change sessions through `operations`, by the rules of `changes`; `sessions` stores them and `events`
delivers what happened. `app` puts them together. Begin with `changes`.
"""
