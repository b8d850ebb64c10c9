-- One row a user. `record` is the encoded ProfileRecord (Sources/Storage/ProfileRecord.swift);
-- `expires_at` is the moment, in milliseconds since 1970, when its first assignment expires.
CREATE TABLE profiles (
    user_id    TEXT PRIMARY KEY NOT NULL,
    record     BLOB NOT NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX profiles_by_expiry ON profiles (expires_at) WHERE expires_at IS NOT NULL;

-- One row, which each transaction that changes profiles brings up to date.
-- `profile_version` counts these transactions: by it a process learns that another one wrote.
CREATE TABLE totals (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    profile_version INTEGER NOT NULL,
    profiles        INTEGER NOT NULL,
    assignments     INTEGER NOT NULL,
    probes          INTEGER NOT NULL
) STRICT;

INSERT INTO totals (id, profile_version, profiles, assignments, probes) VALUES (1, 0, 0, 0, 0);
