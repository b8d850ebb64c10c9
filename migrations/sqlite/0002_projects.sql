-- Every datafile that was ever in force; of those with one SDK key the last is.
CREATE TABLE datafiles (
    version INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    sdk_key TEXT NOT NULL,
    revision TEXT NOT NULL,
    content BLOB NOT NULL,
    -- Milliseconds since 1970.
    stored_at INTEGER NOT NULL,
    -- The name of the token, or where else it came from.
    author TEXT NOT NULL
) STRICT;

CREATE INDEX datafiles_by_sdk_key ON datafiles (sdk_key, version);

-- Variations that are forced on users for a test, which no profile shows.
CREATE TABLE forced_variations (
    sdk_key TEXT NOT NULL,
    user_id TEXT NOT NULL,
    experiment_key TEXT NOT NULL,
    variation_key TEXT NOT NULL,
    PRIMARY KEY (sdk_key, user_id, experiment_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX forced_variations_by_user ON forced_variations (user_id);

-- What happened: exposures ('impression') and goals ('conversion'), in the order of their arrival.
CREATE TABLE events (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    sdk_key TEXT NOT NULL,
    user_id TEXT NOT NULL,
    -- Milliseconds since 1970.
    received_at INTEGER NOT NULL,
    -- A JSON object.
    payload TEXT NOT NULL
) STRICT;

CREATE INDEX events_by_user ON events (user_id);

-- Rises with every change of datafiles and forced variations, so that all processes notice.
ALTER TABLE counters ADD COLUMN project_changes INTEGER NOT NULL DEFAULT 0;
