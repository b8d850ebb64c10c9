-- How many events since the first exposure had a value other than 0: values may add up to 0. Of events that were recorded before
-- this step only sums are known. In the tallies of goals it is the fifth of the counts, which older rows lack.
ALTER TABLE user_goals ADD COLUMN valued bigint NOT NULL DEFAULT 0;
