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
