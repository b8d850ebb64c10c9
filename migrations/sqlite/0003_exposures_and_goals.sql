-- The first exposure of each user to each experiment. A row that changes gets a new number, so that a reader who has
-- read up to some number finds it again behind it.
CREATE TABLE exposures (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    user_id TEXT NOT NULL,
    experiment_id TEXT NOT NULL,
    experiment_key TEXT NOT NULL,
    -- The variation of the first exposure.
    variation_id TEXT NOT NULL,
    -- Milliseconds since 1970.
    happened_at INTEGER NOT NULL,
    -- 1: exposed to more than one variation; 2: the variation was forced on the user. Results count who has neither.
    flags INTEGER NOT NULL,
    sdk_key TEXT NOT NULL,
    -- A JSON object.
    payload TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX exposures_by_user ON exposures (user_id, experiment_id);

-- Goals that users reached, in the order of their arrival.
CREATE TABLE goal_events (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    user_id TEXT NOT NULL,
    goal TEXT NOT NULL,
    value REAL NOT NULL,
    happened_at INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    sdk_key TEXT NOT NULL,
    -- The sender's id of the event; one user has no two of one id.
    sender_id TEXT,
    -- A JSON object.
    payload TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX goal_events_by_user ON goal_events (user_id, sender_id);

-- What one user did for one goal before and since the first exposure to one experiment.
CREATE TABLE user_goals (
    user_id TEXT NOT NULL,
    experiment_id TEXT NOT NULL,
    goal TEXT NOT NULL,
    before_count INTEGER NOT NULL,
    before_value REAL NOT NULL,
    after_count INTEGER NOT NULL,
    after_value REAL NOT NULL,
    PRIMARY KEY (user_id, experiment_id, goal)
) STRICT, WITHOUT ROWID;

-- How many users were first exposed to a variation: those that results count, and those they leave out.
CREATE TABLE variation_users (
    experiment_id TEXT NOT NULL,
    variation_id TEXT NOT NULL,
    counted INTEGER NOT NULL,
    crossed INTEGER NOT NULL,
    forced INTEGER NOT NULL,
    PRIMARY KEY (experiment_id, variation_id)
) STRICT, WITHOUT ROWID;

-- Sums over the counted users of a variation: y is a user's value since the exposure, x that before it. Each sum of
-- values is two numbers, the second what does not fit into the first.
CREATE TABLE variation_goals (
    experiment_id TEXT NOT NULL,
    goal TEXT NOT NULL,
    variation_id TEXT NOT NULL,
    events INTEGER NOT NULL,
    converted INTEGER NOT NULL,
    converted_before INTEGER NOT NULL,
    converted_both INTEGER NOT NULL,
    y REAL NOT NULL, y_rest REAL NOT NULL,
    yy REAL NOT NULL, yy_rest REAL NOT NULL,
    x REAL NOT NULL, x_rest REAL NOT NULL,
    xx REAL NOT NULL, xx_rest REAL NOT NULL,
    xy REAL NOT NULL, xy_rest REAL NOT NULL,
    PRIMARY KEY (experiment_id, goal, variation_id)
) STRICT, WITHOUT ROWID;

-- What was recorded so far. Forced variations were not told apart then.
INSERT INTO exposures (user_id, experiment_id, experiment_key, variation_id, happened_at, flags, sdk_key, payload)
SELECT user_id, payload ->> 'experiment_id', payload ->> 'rule_key', payload ->> 'variation_id', received_at, 0, sdk_key, payload
FROM events
WHERE kind = 'impression' AND coalesce(payload ->> 'experiment_id', '') <> '' AND coalesce(payload ->> 'variation_id', '') <> ''
ORDER BY id
ON CONFLICT (user_id, experiment_id)
DO UPDATE SET flags = 1 WHERE exposures.variation_id <> excluded.variation_id;

INSERT INTO goal_events (user_id, goal, value, happened_at, received_at, sdk_key, sender_id, payload)
SELECT
    user_id, payload ->> 'event_key',
    CASE
        WHEN json_type(payload, '$.tags.value') IN ('integer', 'real') THEN CAST(payload ->> '$.tags.value' AS REAL)
        WHEN json_type(payload, '$.tags.revenue') = 'integer' THEN CAST(payload ->> '$.tags.revenue' AS REAL)
        ELSE 0.0
    END,
    received_at, received_at, sdk_key, NULL, payload
FROM events
WHERE kind = 'conversion'
ORDER BY id;

INSERT INTO user_goals (user_id, experiment_id, goal, before_count, before_value, after_count, after_value)
SELECT
    user_id, experiment_id, goal,
    count(*) FILTER (WHERE goal_events.happened_at < exposures.happened_at),
    coalesce(sum(value) FILTER (WHERE goal_events.happened_at < exposures.happened_at), 0.0),
    count(*) FILTER (WHERE goal_events.happened_at >= exposures.happened_at),
    coalesce(sum(value) FILTER (WHERE goal_events.happened_at >= exposures.happened_at), 0.0)
FROM exposures JOIN goal_events USING (user_id)
-- What lies more than 14 days before the exposure does not count.
WHERE goal_events.happened_at >= exposures.happened_at - 1209600000
GROUP BY user_id, experiment_id, goal;

INSERT INTO variation_users (experiment_id, variation_id, counted, crossed, forced)
SELECT experiment_id, variation_id, sum(flags = 0), sum(flags = 1), 0 FROM exposures GROUP BY experiment_id, variation_id;

INSERT INTO variation_goals
SELECT
    experiment_id, goal, variation_id, sum(after_count), sum(after_count > 0), sum(before_count > 0),
    sum(after_count > 0 AND before_count > 0),
    sum(after_value), 0.0, sum(after_value * after_value), 0.0, sum(before_value), 0.0,
    sum(before_value * before_value), 0.0, sum(before_value * after_value), 0.0
FROM user_goals JOIN exposures USING (user_id, experiment_id)
WHERE flags = 0
GROUP BY experiment_id, goal, variation_id;

DROP TABLE events;
