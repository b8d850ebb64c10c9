-- What admins did, in the order in which they did it.
CREATE TABLE audit (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- Milliseconds since 1970.
    recorded_at INTEGER NOT NULL,
    author TEXT NOT NULL,
    request_id TEXT NOT NULL,
    action TEXT NOT NULL,
    -- NULL: it is not about a user, or the user has been erased since.
    user_id TEXT,
    target TEXT NOT NULL,
    -- JSON, or NULL.
    before TEXT,
    after TEXT
) STRICT;

CREATE INDEX audit_by_time ON audit (recorded_at);
CREATE INDEX audit_by_user ON audit (user_id) WHERE user_id IS NOT NULL;
