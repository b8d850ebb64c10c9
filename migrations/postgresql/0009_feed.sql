-- Numbers of the feed: drawn when the rows of the users are locked, so that those of one user rise in the order of
-- commits.
CREATE SEQUENCE feed_numbers;

-- What transactions changed about users, for those who follow.
CREATE TABLE feed (
    number bigint NOT NULL DEFAULT nextval('feed_numbers') PRIMARY KEY,
    -- Milliseconds since 1970.
    recorded_at bigint NOT NULL,
    -- See FeedEntry.
    entries bytea NOT NULL
);

-- Compressing them would cost those who write more than it saves.
ALTER TABLE feed ALTER COLUMN entries SET STORAGE EXTERNAL;

-- One row.
CREATE TABLE feed_state (
    id smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Identifies the feed, so that no place in another is taken for one in this; 0: changes are not kept.
    epoch bigint NOT NULL,
    -- The last row that was deleted.
    deleted_to bigint NOT NULL,
    -- The rows up to this one are counted.
    counted_to bigint NOT NULL,
    row_count bigint NOT NULL,
    byte_count bigint NOT NULL
);

INSERT INTO feed_state (id, epoch, deleted_to, counted_to, row_count, byte_count) VALUES (1, 0, 0, 0, 0, 0);

-- To whom the entries before a row belong that the feed has of a user, by hashes of ids: to the account that the user was
-- merged into, or to nobody since the user or the account was erased.
CREATE TABLE feed_removals (
    user_hash bigint NOT NULL,
    number bigint NOT NULL,
    account_hash bigint,
    PRIMARY KEY (user_hash, number)
);

CREATE INDEX feed_removals_by_number ON feed_removals (number);
CREATE INDEX feed_removals_by_account ON feed_removals (account_hash);
