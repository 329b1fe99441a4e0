"""Building blocks with which several rooms run things concurrently; nothing here knows the domain.

Begin with `batch_writer`, which commits many callers' items in one database transaction, and
`batcher`, its counterpart for reads.

- Sharing work: `single_flight` lets callers with the same question share one call, `cached_value`
  keeps one answer for two seconds, `hedging` sends a late request a second time.
- Fairness: `fair_slots` lets parties take turns, `shared_cache` gives each its part of a cache.
- Waiting: `keyed_waiters` holds callers until an event about their key arrives, `futures` completes
  futures that may be cancelled, `own_task` loses no cancellation.
- The request that is served: `request_ids` has its id, `work_slots` its slot, `answer_age` the age
  of its oldest read.
- Logging: `outages` logs a lasting failure as two lines, `line_limits` bounds lines that callers
  cause.
- Outside services: `bounded_connector` bounds what aiohttp reads from them.
- Others: `request_connection` is the connection of HTTP clients on hot paths, `clock` is the
  type of every injected clock.
"""
