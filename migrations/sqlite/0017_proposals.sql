-- Changes that wait for the approval of a second person, or had it.
CREATE TABLE proposals (
    id TEXT NOT NULL PRIMARY KEY,
    sdk_key TEXT NOT NULL,
    -- Milliseconds since 1970.
    created_at INTEGER NOT NULL,
    -- 0: pending; 1: approved; 2: rejected.
    status INTEGER NOT NULL,
    -- JSON: who proposes it, the request without its body, what it changes, and the decision.
    content TEXT NOT NULL,
    -- The body of the request.
    body BLOB NOT NULL
) STRICT;
CREATE INDEX proposals_of_project ON proposals (sdk_key, created_at);
