-- Which store this is: the same after a restore and in a copy at another place; 0 while there has been no feed.
ALTER TABLE feed_state ADD COLUMN store_id INTEGER NOT NULL DEFAULT 0;
-- The epochs that the feed had before, and others that edges have presented: hexadecimal, each followed by a comma.
ALTER TABLE feed_state ADD COLUMN former_epochs TEXT NOT NULL DEFAULT '';
