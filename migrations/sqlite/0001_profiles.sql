-- One row a user: the assignments in the encoding of ProfileRecord.
CREATE TABLE profiles (
    user_id TEXT NOT NULL PRIMARY KEY,
    record BLOB NOT NULL,
    -- When the first assignment expires, in milliseconds since 1970; NULL: none does.
    expires_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX profiles_expiry ON profiles (expires_at) WHERE expires_at IS NOT NULL;

-- One row, changed by every commit: tells caches in all processes what they have missed, and counts for metrics.
CREATE TABLE counters (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    commits INTEGER NOT NULL,
    profiles INTEGER NOT NULL,
    assignments INTEGER NOT NULL
) STRICT;

INSERT INTO counters (id, commits, profiles, assignments) VALUES (1, 0, 0, 0);
