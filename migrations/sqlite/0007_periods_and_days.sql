-- The times in which an experiment's traffic allocation stayed the same in one project: under which allocation users got
-- their variations.
CREATE TABLE allocation_periods (
    experiment_id TEXT NOT NULL,
    -- The version of the datafile that began the period.
    number INTEGER NOT NULL,
    sdk_key TEXT NOT NULL,
    -- When that datafile was stored, in milliseconds since 1970.
    since INTEGER NOT NULL,
    -- JSON: the trafficAllocation of the datafile.
    allocation TEXT NOT NULL,
    PRIMARY KEY (experiment_id, number)
) STRICT, WITHOUT ROWID;

-- The allocations of the datafiles that are still stored.
INSERT INTO allocation_periods (experiment_id, number, sdk_key, since, allocation)
WITH
documents AS (
    SELECT
        version, sdk_key, stored_at,
        CASE WHEN json_valid(CAST(content AS TEXT)) THEN CAST(content AS TEXT) ELSE '{}' END AS content
    FROM datafiles
),
experiments AS (
    SELECT version, sdk_key, stored_at, experiment.value
    FROM documents, json_each(content, '$.experiments') AS experiment
    WHERE experiment.type = 'object'
    UNION ALL
    SELECT version, sdk_key, stored_at, experiment.value
    FROM documents, json_each(content, '$.groups') AS entry, json_each(entry.value, '$.experiments') AS experiment
    WHERE entry.type = 'object' AND experiment.type = 'object'
),
allocations AS (
    SELECT
        version, sdk_key, stored_at, value ->> 'id' AS experiment_id,
        coalesce(value -> 'trafficAllocation', '[]') AS allocation
    FROM experiments
),
changes AS (
    SELECT *, lag(allocation) OVER (PARTITION BY sdk_key, experiment_id ORDER BY version) AS former
    FROM allocations
)
SELECT experiment_id, version, sdk_key, stored_at, allocation
FROM changes
WHERE experiment_id IS NOT NULL AND (former IS NULL OR former <> allocation)
ON CONFLICT DO NOTHING;

-- The period of the first exposure; 0 if it is not known.
ALTER TABLE exposures ADD COLUMN period INTEGER NOT NULL DEFAULT 0;

-- What happened before the oldest stored datafile is taken for its period.
UPDATE exposures SET period = coalesce(
    (
        SELECT number FROM allocation_periods AS known
        WHERE known.experiment_id = exposures.experiment_id AND known.sdk_key = exposures.sdk_key
            AND since <= happened_at
        ORDER BY since DESC, number DESC LIMIT 1
    ),
    (
        SELECT min(number) FROM allocation_periods AS known
        WHERE known.experiment_id = exposures.experiment_id AND known.sdk_key = exposures.sdk_key
    ),
    0
);

-- How many users were first exposed to a variation, under an allocation, on a UTC day (counted from 1970-01-01).
DROP TABLE variation_users;

CREATE TABLE variation_users (
    experiment_id TEXT NOT NULL,
    variation_id TEXT NOT NULL,
    period INTEGER NOT NULL,
    day INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    crossed INTEGER NOT NULL,
    forced INTEGER NOT NULL,
    PRIMARY KEY (experiment_id, variation_id, period, day)
) STRICT, WITHOUT ROWID;

INSERT INTO variation_users (experiment_id, variation_id, period, day, counted, crossed, forced)
SELECT
    experiment_id, variation_id, period, happened_at / 86400000, sum(flags = 0), sum(flags = 1), sum(flags & 2) / 2
FROM exposures
GROUP BY experiment_id, variation_id, period, happened_at / 86400000;

-- Sums over the counted users of a variation who were enrolled on a day; see the table before.
ALTER TABLE variation_goals RENAME TO former_goals;

CREATE TABLE variation_goals (
    experiment_id TEXT NOT NULL,
    goal TEXT NOT NULL,
    variation_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    events INTEGER NOT NULL,
    converted INTEGER NOT NULL,
    converted_before INTEGER NOT NULL,
    converted_both INTEGER NOT NULL,
    y REAL NOT NULL, y_rest REAL NOT NULL,
    yy REAL NOT NULL, yy_rest REAL NOT NULL,
    x REAL NOT NULL, x_rest REAL NOT NULL,
    xx REAL NOT NULL, xx_rest REAL NOT NULL,
    xy REAL NOT NULL, xy_rest REAL NOT NULL,
    PRIMARY KEY (experiment_id, goal, variation_id, day)
) STRICT, WITHOUT ROWID;

INSERT INTO variation_goals
SELECT
    experiment_id, goal, variation_id, happened_at / 86400000, sum(after_count), sum(after_count > 0),
    sum(before_count > 0), sum(after_count > 0 AND before_count > 0),
    sum(after_value), 0.0, sum(after_value * after_value), 0.0, sum(before_value), 0.0,
    sum(before_value * before_value), 0.0, sum(before_value * after_value), 0.0
FROM user_goals JOIN exposures USING (user_id, experiment_id)
WHERE flags = 0
GROUP BY experiment_id, goal, variation_id, happened_at / 86400000;

-- The sums that were kept so far are more exact than these. The difference goes to the first day, so that rounding errors do
-- not add up in the totals.
UPDATE variation_goals SET
    y_rest = former.y - total.y + former.y_rest, yy_rest = former.yy - total.yy + former.yy_rest,
    x_rest = former.x - total.x + former.x_rest, xx_rest = former.xx - total.xx + former.xx_rest,
    xy_rest = former.xy - total.xy + former.xy_rest
FROM former_goals AS former
JOIN (
    SELECT
        experiment_id, goal, variation_id, min(day) AS day, sum(y) AS y, sum(yy) AS yy, sum(x) AS x, sum(xx) AS xx,
        sum(xy) AS xy
    FROM variation_goals GROUP BY experiment_id, goal, variation_id
) AS total USING (experiment_id, goal, variation_id)
WHERE variation_goals.experiment_id = former.experiment_id AND variation_goals.goal = former.goal
    AND variation_goals.variation_id = former.variation_id AND variation_goals.day = total.day;

DROP TABLE former_goals;
