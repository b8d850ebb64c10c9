-- The project that an entry is about; NULL: it is about none, or about all of them, or older than this column.
ALTER TABLE audit ADD COLUMN sdk_key TEXT;

-- Where to send what happens.
CREATE TABLE webhooks (
    key TEXT NOT NULL PRIMARY KEY,
    -- NULL: events of all projects.
    sdk_key TEXT,
    -- JSON: URL, events, format and secrets.
    definition TEXT NOT NULL,
    -- JSON: how far it has come, who sends, and what came of the last deliveries.
    state TEXT NOT NULL
) STRICT;

-- What was found last in each experiment, so that each change of it is told once.
CREATE TABLE experiment_findings (
    sdk_key TEXT NOT NULL,
    experiment_id TEXT NOT NULL,
    -- Milliseconds since 1970.
    looked_at INTEGER NOT NULL,
    -- JSON: warnings and verdict.
    content TEXT NOT NULL,
    PRIMARY KEY (sdk_key, experiment_id)
) STRICT, WITHOUT ROWID;
