-- The PostgreSQL timeline on which a lane last signed: another one means that a replica was promoted, or a
-- backup restored, which may lack the last commits.
ALTER TABLE lanes ADD COLUMN timeline bigint;

-- Differences between books and chain that a person has explained, so that `ltzd books` counts them no more.
CREATE TABLE books_acknowledgements (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind            text NOT NULL,
  subject         text NOT NULL,
  reason          text NOT NULL,
  acknowledged_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (kind, subject)
);
