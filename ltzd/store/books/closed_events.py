"""Events that retention has taken away, as the books count them (decision 0045)."""

from typing import Final

REWARDS: Final = """
(SELECT r.*, c.end_id
   FROM closed_event_sums c
   JOIN rewards r ON r.brand_id = c.brand_id AND r.id >= c.first_id AND r.id < c.end_id
                     AND r.kind = 1
  WHERE NOT EXISTS (SELECT FROM events e WHERE e.id = r.id))
"""
"""The rewards of these events, as a subquery.

A wrong clock may give an event an id that is older than the event. Its row may then come after the
partition of its id was dropped, so a reward counts here only if its event has no row. This is no
view, because a view would go on reading the table that `events` was before it had partitions.
"""
