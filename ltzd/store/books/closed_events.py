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

An event whose id is older than its time, by a wrong clock, may come after its partition was taken
away; such an event is there. No view, since a view would follow the table that `events` was before
its partitions.
"""
