-- Which process holds a lane, a chain or a periodic job. A lease that is not renewed in time, or whose
-- database session has ended, may be taken by another process. Times are the database's. A holder that
-- ends deletes its row.
CREATE TABLE leases (
  name          text PRIMARY KEY,
  holder        uuid NOT NULL,                  -- of one term of one process
  process       text NOT NULL,                  -- for people: the host's name and the process id
  pid           integer NOT NULL,               -- the holder's session, with the next column
  backend_start timestamptz NOT NULL,
  taken_at      timestamptz NOT NULL,
  renewed_at    timestamptz NOT NULL,
  expires_at    timestamptz NOT NULL
) WITH (fillfactor = 50);                       -- so that renewals change no index
