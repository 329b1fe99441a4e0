"""Building blocks with which several rooms run things concurrently; nothing here knows the domain.

Begin with `batch_writer`, which commits many callers' items in one database transaction, and
`batcher`, its counterpart for reads. `single_flight` lets callers with the same question share one
call, `second_asks` does not wait for a late answer, `cached_value` keeps one answer for a second,
`keyed_waiters` holds callers until an event about their key arrives, `own_task` loses no
cancellation, `outages` logs a failure that lasts as two lines, `request_ids` says which HTTP
request is served, `request_connection` is what the clients of hot paths send their HTTP requests
on, and `clock` is the type of every injected clock.
"""
