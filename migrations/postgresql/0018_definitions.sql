-- The elements of datafiles that edits generate: a datafile of version V has those with version <= V that are not
-- replaced until V.
CREATE TABLE definitions (
    sdk_key text COLLATE "C" NOT NULL,
    -- A member of the datafile, as experiments or groups/7.
    list text COLLATE "C" NOT NULL,
    -- Of the element in the list.
    key text COLLATE "C" NOT NULL,
    -- Of the datafile that brought it.
    version bigint NOT NULL,
    -- The version of the datafile that replaced or removed it.
    until bigint,
    -- Increases with the place in the list.
    position bigint NOT NULL,
    -- JSON.
    body bytea NOT NULL,
    PRIMARY KEY (sdk_key, list, key, version)
);

CREATE INDEX definitions_by_version ON definitions (version);

CREATE INDEX definitions_by_until ON definitions (until) WHERE until IS NOT NULL;

-- JSON: a datafile in parts without the elements, which are in the table definitions. Its content is empty, so that a server of
-- an earlier release takes it for unusable and goes on with the former one.
ALTER TABLE datafiles ADD COLUMN base bytea;
