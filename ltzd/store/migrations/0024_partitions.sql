-- Migrations of large tables, which run in the background while the tables are used. A row is deleted by no one,
-- so that `ltzd status` tells what is still to do and why it stands still.
CREATE TABLE background_migrations (
  name        text PRIMARY KEY,
  step        text,                             -- what is being done, for people
  started_at  timestamptz,
  updated_at  timestamptz,
  finished_at timestamptz,
  error       text                              -- of the last attempt, which is repeated
);
