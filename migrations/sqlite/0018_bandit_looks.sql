-- The last look of each bandit that left the weights as they were. One that changed them is in the datafile.
CREATE TABLE bandit_looks (
    sdk_key TEXT NOT NULL,
    experiment_id TEXT NOT NULL,
    -- Milliseconds since 1970.
    looked_at INTEGER NOT NULL,
    -- JSON: what came of it.
    content TEXT NOT NULL,
    PRIMARY KEY (sdk_key, experiment_id)
) STRICT, WITHOUT ROWID;
