-- What is computed of each user's goal events for metrics of experiments, beside each goal's own totals. Totals are in
-- user_goals and variation_goals, under names that begin with U+0001 and the number.
CREATE TABLE tracked_series (
    number INTEGER NOT NULL PRIMARY KEY,
    sdk_key TEXT NOT NULL,
    experiment_id TEXT NOT NULL,
    -- A JSON object, see SeriesDefinition.
    definition TEXT NOT NULL,
    -- 0: users are being given totals; 1: all have them; 2: it is not tracked any more, and totals are being deleted.
    state INTEGER NOT NULL,
    -- The number of the last exposure whose user is done.
    done_to INTEGER NOT NULL,
    -- Events that were received before this time are missing, in milliseconds since 1970; 0: none are.
    since INTEGER NOT NULL
) STRICT;

CREATE INDEX tracked_series_by_experiment ON tracked_series (experiment_id);

-- The number of the newest series. It rises with every change of series but progress.
ALTER TABLE counters ADD COLUMN newest_series INTEGER NOT NULL DEFAULT 0;
-- Goal events that were received before this time have been deleted, in milliseconds since 1970; 0: none were.
ALTER TABLE counters ADD COLUMN events_since INTEGER NOT NULL DEFAULT 0;

UPDATE counters SET events_since = (SELECT received_at FROM goal_events ORDER BY number LIMIT 1)
WHERE (SELECT min(number) FROM goal_events) > 1;
