-- The times in which an experiment had one status in one project: whether it was running when a user was exposed.
CREATE TABLE status_periods (
    experiment_id TEXT NOT NULL,
    -- The version of the datafile that began the period.
    number INTEGER NOT NULL,
    sdk_key TEXT NOT NULL,
    -- When that datafile was stored, in milliseconds since 1970.
    since INTEGER NOT NULL,
    -- As the datafile has it; of a draft 'Draft'.
    status TEXT NOT NULL,
    PRIMARY KEY (experiment_id, number)
) STRICT, WITHOUT ROWID;

-- The statuses in the datafiles that are still stored.
INSERT INTO status_periods (experiment_id, number, sdk_key, since, status)
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
statuses AS (
    SELECT
        version, sdk_key, stored_at, value ->> 'id' AS experiment_id,
        CASE
            WHEN json_extract(value, '$.holdfast.status') = 'draft' THEN 'Draft'
            ELSE coalesce(value ->> 'status', '')
        END AS status
    FROM experiments
),
changes AS (
    SELECT *, lag(status) OVER (PARTITION BY sdk_key, experiment_id ORDER BY version) AS former
    FROM statuses
)
SELECT experiment_id, version, sdk_key, stored_at, status
FROM changes
WHERE experiment_id IS NOT NULL AND (former IS NULL OR former <> status)
ON CONFLICT DO NOTHING;

-- Exposures that happened while the experiment was not running. Nobody is counted for them.
ALTER TABLE variation_users ADD COLUMN not_running INTEGER NOT NULL DEFAULT 0;
