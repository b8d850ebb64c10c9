-- The times in which an experiment had one status in one project: whether it was running when a user was exposed.
CREATE TABLE status_periods (
    experiment_id text COLLATE "C" NOT NULL,
    -- The version of the datafile that began the period.
    number bigint NOT NULL,
    sdk_key text NOT NULL,
    -- When that datafile was stored, in milliseconds since 1970.
    since bigint NOT NULL,
    -- As the datafile has it; of a draft 'Draft'.
    status text NOT NULL,
    PRIMARY KEY (experiment_id, number)
);

-- The statuses in the datafiles that are still stored.
INSERT INTO status_periods (experiment_id, number, sdk_key, since, status)
WITH
documents AS (
    SELECT version, sdk_key, stored_at, convert_from(content, 'UTF8')::json AS content FROM datafiles
),
experiments AS (
    SELECT version, sdk_key, stored_at, experiment
    FROM documents, json_array_elements(
        CASE json_typeof(content -> 'experiments') WHEN 'array' THEN content -> 'experiments' ELSE '[]' END
    ) AS experiment
    UNION ALL
    SELECT version, sdk_key, stored_at, experiment
    FROM documents, json_array_elements(
        CASE json_typeof(content -> 'groups') WHEN 'array' THEN content -> 'groups' ELSE '[]' END
    ) AS entry, json_array_elements(
        CASE json_typeof(entry -> 'experiments') WHEN 'array' THEN entry -> 'experiments' ELSE '[]' END
    ) AS experiment
),
statuses AS (
    SELECT
        version, sdk_key, stored_at, experiment ->> 'id' AS experiment_id,
        CASE
            WHEN experiment -> 'holdfast' ->> 'status' = 'draft' THEN 'Draft'
            ELSE coalesce(experiment ->> 'status', '')
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
