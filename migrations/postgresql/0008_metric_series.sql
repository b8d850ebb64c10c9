-- What is computed of each user's goal events for metrics of experiments, beside each goal's own totals. Totals are in
-- user_goals and tallies, under names that begin with U+0001 and the number.
CREATE TABLE tracked_series (
    number bigint NOT NULL PRIMARY KEY,
    sdk_key text COLLATE "C" NOT NULL,
    experiment_id text COLLATE "C" NOT NULL,
    -- A JSON object, see SeriesDefinition.
    definition text NOT NULL,
    -- 0: users are being given totals; 1: all have them; 2: it is not tracked any more, and totals are being deleted.
    state bigint NOT NULL,
    -- The number of the last exposure whose user is done.
    done_to bigint NOT NULL,
    -- Events that were received before this time are missing, in milliseconds since 1970; 0: none are.
    since bigint NOT NULL
);

CREATE INDEX tracked_series_by_experiment ON tracked_series (experiment_id);

-- The number of the newest series. It rises with every change of series but progress: transactions that store events
-- depend on it.
ALTER TABLE project_state ADD COLUMN newest_series bigint NOT NULL DEFAULT 0;
-- Goal events that were received before this time have been deleted, in milliseconds since 1970; 0: none were.
ALTER TABLE project_state ADD COLUMN events_since bigint NOT NULL DEFAULT 0;
