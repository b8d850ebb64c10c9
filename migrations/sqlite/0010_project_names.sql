-- Each project, its SDK key and what people call it.
CREATE TABLE projects (
    sdk_key TEXT NOT NULL PRIMARY KEY,
    -- Empty: it has no name.
    name TEXT NOT NULL,
    -- Milliseconds since 1970.
    created_at INTEGER NOT NULL,
    -- 1 for the project of requests that name none.
    is_default INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO projects (sdk_key, name, created_at, is_default)
SELECT sdk_key, '', min(stored_at), 0 FROM datafiles GROUP BY sdk_key;

-- Earlier releases took the only project, or the one of this name.
UPDATE projects SET is_default = 1 WHERE sdk_key = (
    SELECT sdk_key FROM datafiles GROUP BY sdk_key ORDER BY sdk_key = 'default' DESC, min(version) LIMIT 1);
