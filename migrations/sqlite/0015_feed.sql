-- What transactions changed about users, for those who follow.
CREATE TABLE feed (
    -- Rises in the order of commits; see counters.
    number INTEGER NOT NULL PRIMARY KEY,
    -- Milliseconds since 1970.
    recorded_at INTEGER NOT NULL,
    -- See FeedEntry.
    entries BLOB NOT NULL
) STRICT;

-- The number of the last row of the feed.
ALTER TABLE counters ADD COLUMN feed_number INTEGER NOT NULL DEFAULT 0;

-- One row.
CREATE TABLE feed_state (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Identifies the feed, so that no place in another is taken for one in this; 0: changes are not kept.
    epoch INTEGER NOT NULL,
    -- The last row that was deleted.
    deleted_to INTEGER NOT NULL,
    -- The rows up to this one are counted.
    counted_to INTEGER NOT NULL,
    row_count INTEGER NOT NULL,
    byte_count INTEGER NOT NULL
) STRICT;

INSERT INTO feed_state (id, epoch, deleted_to, counted_to, row_count, byte_count) VALUES (1, 0, 0, 0, 0, 0);

-- To whom the entries before a row belong that the feed has of a user, by hashes of ids: to the account that the user was
-- merged into, or to nobody since the user or the account was erased.
CREATE TABLE feed_removals (
    user_hash INTEGER NOT NULL,
    number INTEGER NOT NULL,
    account_hash INTEGER,
    PRIMARY KEY (user_hash, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX feed_removals_by_number ON feed_removals (number);
CREATE INDEX feed_removals_by_account ON feed_removals (account_hash);
