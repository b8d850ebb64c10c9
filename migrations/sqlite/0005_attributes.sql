-- The schema of attributes. A number is never given twice, as records may still hold values of one that is gone.
CREATE TABLE attributes (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    -- A JSON object: "type", and of selections "values" and "multiple".
    definition TEXT NOT NULL
) STRICT;

-- Attributes that were deleted and whose values are still to be: those of users up to this one are gone.
CREATE TABLE attribute_removals (
    number INTEGER NOT NULL PRIMARY KEY,
    after_user_id TEXT NOT NULL
) STRICT;

-- One row a user: the values in the encoding of AttributeRecord.
CREATE TABLE user_attributes (
    user_id TEXT NOT NULL PRIMARY KEY,
    record BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE segments (
    name TEXT NOT NULL PRIMARY KEY,
    -- JSON: conditions as an audience of a datafile has them.
    conditions TEXT NOT NULL
) STRICT, WITHOUT ROWID;
