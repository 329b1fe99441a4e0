-- Counts the writes of each user's relays. A relay is decided on the user's rows as of one version and
-- inserted if the version is still the same. Rows are never deleted, since a version must not come again.
CREATE TABLE relay_users (
  user_address bytea PRIMARY KEY CHECK (octet_length(user_address) = 20),
  version      bigint NOT NULL
) WITH (fillfactor = 50);
