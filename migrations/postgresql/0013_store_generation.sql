-- Which store this is: the same after a restore and in a copy at another place; 0 while there has been no feed.
ALTER TABLE feed_state ADD COLUMN store_id bigint NOT NULL DEFAULT 0;
-- The epochs that the feed had before, and others that edges have presented: hexadecimal, each followed by a comma.
ALTER TABLE feed_state ADD COLUMN former_epochs text COLLATE "C" NOT NULL DEFAULT '';
