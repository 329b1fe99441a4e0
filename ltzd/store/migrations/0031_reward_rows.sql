-- A reward's row is updated twice: by its mint's transaction, which belongs to two indexes, and by the mint,
-- which belongs to none. It grows from 168 to 270 bytes meanwhile. With so much room in a new page both new
-- rows stay there, so that recording a mint updates no index (HOT). Pages that are filled already stay as
-- they are.
ALTER TABLE rewards SET (fillfactor = 35);
