-- A rebuild of the index: fresh tables are filled in a schema of their own and swapped with the live ones.
CREATE SCHEMA IF NOT EXISTS ltzd_rebuild;   -- the fresh tables
CREATE SCHEMA IF NOT EXISTS ltzd_replaced;  -- the old tables after the swap, until they are dropped

CREATE TABLE rebuilds (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  reason            text NOT NULL CHECK (reason IN ('ordered', 'contracts')),
  from_block        bigint NOT NULL DEFAULT 0,  -- facts below it are kept
  contracts         bytea[],                    -- whose facts the fresh tables hold; any, until it begins
  state             text NOT NULL DEFAULT 'ordered'
                    CHECK (state IN ('ordered', 'copying', 'filling', 'swapped', 'done', 'cancelled')),
  revision          text,                       -- the schema's, when the fresh tables were created
  recorded_number   bigint,                     -- the new mints up to this block have been recorded on rewards
  checked_reward    uuid,                       -- rewards up to this id have been compared with the new mints
  error             text,                       -- why the last attempt to go on failed
  ordered_at        timestamptz NOT NULL DEFAULT now(),
  started_at        timestamptz,
  swapped_at        timestamptz,
  ended_at          timestamptz                 -- set once no table is left behind
);
-- One at a time.
CREATE UNIQUE INDEX rebuilds_open ON rebuilds ((true)) WHERE ended_at IS NULL;

-- The cursor of the fresh tables. The table exists also between two rebuilds, so that a process that was frozen while
-- it filled fresh tables finds no row here, and never that of the live index.
DROP TABLE IF EXISTS ltzd_rebuild.chains;
CREATE TABLE ltzd_rebuild.chains (LIKE chains INCLUDING ALL);
