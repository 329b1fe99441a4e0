-- Migrations of large tables, which run in the background while the tables are used. Rows stay, so that an
-- operator sees what was done when, and why a migration stands still.
CREATE TABLE background_migrations (
  name        text PRIMARY KEY,
  table_name  text NOT NULL,
  step        text,                             -- the step that runs or ran last, for people
  started_at  timestamptz,
  finished_at timestamptz,
  error       text,                             -- of the last attempt; it is repeated
  CHECK (finished_at IS NULL OR started_at IS NOT NULL AND error IS NULL)
);

-- A wallet without LTZ has no balance from now on.
INSERT INTO background_migrations (name, table_name)
SELECT 'shrink balances', 'balances'
 WHERE EXISTS (SELECT FROM balances);
