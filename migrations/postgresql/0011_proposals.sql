-- Changes that wait for the approval of a second person, or had it.
CREATE TABLE proposals (
    id text COLLATE "C" PRIMARY KEY,
    sdk_key text COLLATE "C" NOT NULL,
    -- Milliseconds since 1970.
    created_at bigint NOT NULL,
    -- 0: pending; 1: approved; 2: rejected.
    status bigint NOT NULL,
    -- JSON: who proposes it, the request without its body, what it changes, and the decision.
    content text NOT NULL,
    -- The body of the request.
    body bytea NOT NULL
);
CREATE INDEX proposals_of_project ON proposals (sdk_key, created_at);
