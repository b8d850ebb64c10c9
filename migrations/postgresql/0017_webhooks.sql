-- The project that an entry is about; NULL: it is about none, or about all of them, or older than this column.
ALTER TABLE audit ADD COLUMN sdk_key text COLLATE "C";

-- Where to send what happens.
CREATE TABLE webhooks (
    key text COLLATE "C" PRIMARY KEY,
    -- NULL: events of all projects.
    sdk_key text COLLATE "C",
    -- JSON: URL, events, format and secrets.
    definition text NOT NULL,
    -- JSON: how far it has come, who sends, and what came of the last deliveries.
    state text NOT NULL
);

-- What was found last in each experiment, so that each change of it is told once.
CREATE TABLE experiment_findings (
    sdk_key text COLLATE "C" NOT NULL,
    experiment_id text COLLATE "C" NOT NULL,
    -- Milliseconds since 1970.
    looked_at bigint NOT NULL,
    -- JSON: warnings and verdict.
    content text NOT NULL,
    PRIMARY KEY (sdk_key, experiment_id)
);
