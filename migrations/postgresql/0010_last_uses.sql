-- The last day on which a flag or a variation was used, as far as servers have noted it.
CREATE TABLE last_uses (
    sdk_key text COLLATE "C" NOT NULL,
    -- 0: a flag was known; 1: it was evaluated; 2: a user was exposed.
    kind bigint NOT NULL,
    -- The key of the flag, or the id of the experiment.
    key text COLLATE "C" NOT NULL,
    -- The key of the variation, or its id; empty if there is none.
    variation text COLLATE "C" NOT NULL,
    -- Days since 1970-01-01 in UTC.
    day bigint NOT NULL,
    PRIMARY KEY (sdk_key, kind, key, variation)
);
