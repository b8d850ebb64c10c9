-- The last look of each bandit that left the weights as they were. One that changed them is in the datafile.
CREATE TABLE bandit_looks (
    sdk_key text COLLATE "C" NOT NULL,
    experiment_id text COLLATE "C" NOT NULL,
    -- Milliseconds since 1970.
    looked_at bigint NOT NULL,
    -- JSON: what came of it.
    content text NOT NULL,
    PRIMARY KEY (sdk_key, experiment_id)
);
