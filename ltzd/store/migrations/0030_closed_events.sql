-- Events that retention has taken away, as sums of a partition and brand (decision 0045).
CREATE TABLE closed_event_sums (
  brand_id  bytea NOT NULL,
  first_id  uuid NOT NULL,            -- of the partition
  end_id    uuid NOT NULL,            -- the first id after the partition
  events    bigint NOT NULL CHECK (events > 0),  -- worth LTZ
  ltz       bigint NOT NULL CHECK (ltz > 0),
  closed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (brand_id, end_id)
);

-- An event whose id is older than its time, by a wrong clock, may come after its partition was taken away; such an event is there.
CREATE VIEW rewards_of_closed_events AS
SELECT r.*, c.end_id
  FROM closed_event_sums c
  JOIN rewards r ON r.brand_id = c.brand_id AND r.id >= c.first_id AND r.id < c.end_id AND r.kind = 1
 WHERE NOT EXISTS (SELECT FROM events e WHERE e.id = r.id);
