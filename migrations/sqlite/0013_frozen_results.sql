-- The totals of concluded experiments as they were at their conclusion.
CREATE TABLE frozen_results (
    experiment_id TEXT NOT NULL,
    -- Identifies the conclusion; milliseconds since 1970.
    frozen_at INTEGER NOT NULL,
    -- Empty: what all goals have in common.
    goal TEXT NOT NULL,
    -- JSON.
    content TEXT NOT NULL,
    PRIMARY KEY (experiment_id, frozen_at, goal)
) STRICT, WITHOUT ROWID;
