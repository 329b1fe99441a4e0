"""The processes below dev mode: PostgreSQL, Redis and a dev chain, each in a session of its own.

`supervisor` starts what the options do not name by URL and watches it. `postgres`, `redis` and
`chain` each know one service; `processes` starts, finds and stops any of them, with `launch` as the
first code of each new process. `data_dir` owns the directory that they live in. Begin with
`supervisor`.
"""
