-- Users who were erased lately, by a hash of their id: what other processes had received of them before must not be stored
-- any more.
CREATE TABLE erasures (
    user_hash INTEGER NOT NULL PRIMARY KEY,
    -- Nanoseconds of the machine's monotonic clock, which starts anew with the machine.
    erased_at INTEGER NOT NULL
) STRICT;

CREATE INDEX erasures_by_time ON erasures (erased_at);

-- The last datafile of an author, without a look at the contents of the others.
CREATE INDEX datafiles_by_author ON datafiles (sdk_key, author, version);
