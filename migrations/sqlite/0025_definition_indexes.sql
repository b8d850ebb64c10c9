-- The changes of one project are found without looking at the elements of all.
DROP INDEX definitions_by_version;

DROP INDEX definitions_by_until;

CREATE INDEX definitions_by_version ON definitions (sdk_key, version);

CREATE INDEX definitions_by_until ON definitions (sdk_key, until) WHERE until IS NOT NULL;
