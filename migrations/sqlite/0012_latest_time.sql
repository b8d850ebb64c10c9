-- The time of the last commit, in milliseconds since 1970, so that the time of the database never goes back.
ALTER TABLE counters ADD COLUMN latest_time INTEGER NOT NULL DEFAULT 0;
