"""How long personal data is kept, and its erasure (decision 0036).

`erasure` hides one user's e-mail address for good, `expiry` does the same for all that are older
than the settings allow, in bounded batches, and deletes requests that nothing reads any more.
`old_events` drops whole partitions of events (decision 0045).
"""
