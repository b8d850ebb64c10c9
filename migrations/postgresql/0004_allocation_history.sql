-- The allocations of the datafiles that are still stored: until now only those under which somebody was exposed were
-- known. A period that repeats the allocation of the one before makes no difference.
INSERT INTO allocation_periods (experiment_id, number, sdk_key, since, allocation)
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
allocations AS (
    SELECT
        version, sdk_key, stored_at, experiment ->> 'id' AS experiment_id,
        coalesce(
            CASE
                -- While enrollment is closed, the datafile has no traffic.
                WHEN experiment -> 'holdfast' ->> 'enrollment' = 'closed'
                    THEN experiment -> 'holdfast' ->> 'trafficAllocation'
            END,
            experiment ->> 'trafficAllocation', '[]'
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
