-- The processes that run, each with its own report, which it renews every few seconds (decision 0035).
-- Times are the database's. A clean end deletes the row; the row of a killed process stays for an hour.
CREATE TABLE processes (
  id         uuid PRIMARY KEY,                  -- of one run of one process
  host       text NOT NULL,
  pid        integer NOT NULL,
  roles      text[] NOT NULL,
  version    text NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  report     jsonb NOT NULL                     -- conditions, lanes and the highest block it knows of
) WITH (fillfactor = 50);                       -- so that reports change no index
