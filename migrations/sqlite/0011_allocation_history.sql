-- The allocations of the datafiles that are still stored: until now only those under which somebody was exposed were
-- known. A period that repeats the allocation of the one before makes no difference.
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
        coalesce(
            CASE
                -- While enrollment is closed, the datafile has no traffic.
                WHEN json_extract(value, '$.holdfast.enrollment') = 'closed'
                    THEN json_extract(value, '$.holdfast.trafficAllocation')
            END,
            value -> 'trafficAllocation', '[]'
        ) AS allocation
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
