-- How many events since the first exposure had a value other than 0: values may add up to 0. Of events that were recorded before
-- this step only sums are known.
ALTER TABLE user_goals ADD COLUMN valued INTEGER NOT NULL DEFAULT 0;
ALTER TABLE variation_goals ADD COLUMN valued INTEGER NOT NULL DEFAULT 0;
