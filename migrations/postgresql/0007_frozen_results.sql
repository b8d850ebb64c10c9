-- The totals of concluded experiments as they were at their conclusion.
CREATE TABLE frozen_results (
    experiment_id text COLLATE "C" NOT NULL,
    -- Identifies the conclusion; milliseconds since 1970.
    frozen_at bigint NOT NULL,
    -- Empty: what all goals have in common.
    goal text COLLATE "C" NOT NULL,
    -- JSON.
    content text NOT NULL,
    PRIMARY KEY (experiment_id, frozen_at, goal)
);
