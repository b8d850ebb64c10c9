-- Users who were erased, or became part of another, within the last 8 days: what an edge has accepted of them before, and
-- sends later, is dropped, or counts for the other.
CREATE TABLE removed_users (
    -- A hash of the user's id.
    user_hash INTEGER NOT NULL,
    -- Milliseconds since 1970.
    removed_at INTEGER NOT NULL,
    -- Whom the user became part of. NULL: what there was is erased.
    account TEXT,
    PRIMARY KEY (user_hash, removed_at)
) STRICT, WITHOUT ROWID;

CREATE INDEX removed_users_by_account ON removed_users (account) WHERE account IS NOT NULL;
CREATE INDEX removed_users_by_time ON removed_users (removed_at);

-- Merges, by the user who was merged into another.
CREATE INDEX audit_by_merged ON audit ((after ->> 'from')) WHERE action = 'profile.merge';
