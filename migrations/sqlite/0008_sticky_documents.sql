-- One row a sticky document of GrowthBook SDKs. By the value first: erasing a user deletes all documents of that value.
CREATE TABLE sticky_documents (
    attribute_value TEXT NOT NULL,
    attribute_name TEXT NOT NULL,
    -- A JSON object: keys of variations by '<experiment>__<bucketVersion>'.
    assignments TEXT NOT NULL,
    PRIMARY KEY (attribute_value, attribute_name)
) STRICT, WITHOUT ROWID;
