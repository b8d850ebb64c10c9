-- One row a user: the profile in the encoding of ProfileRecord, the attributes in that of AttributeRecord. Everyone with
-- rows in other tables has one, too: its version guards all of them.
CREATE TABLE users (
    user_id text COLLATE "C" NOT NULL PRIMARY KEY,
    -- A random number that differs after each change of anything about the user that rules depend on.
    version bigint NOT NULL,
    -- NULL: the user has no profile.
    profile bytea,
    -- The assignments in the profile.
    assignments integer NOT NULL DEFAULT 0,
    -- When the first assignment expires, in milliseconds since 1970; NULL: none does.
    expires_at bigint,
    -- NULL: the user has no attributes.
    attributes bytea
);

CREATE INDEX users_expiry ON users (expires_at) WHERE expires_at IS NOT NULL;

-- One row, locked by every change of what it counts.
CREATE TABLE project_state (
    id smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Rises with every change of datafiles, forced variations, attributes and segments, so that all servers notice.
    changes bigint NOT NULL,
    -- The version of the newest datafile of all projects.
    newest_datafile bigint NOT NULL,
    -- The number of the newest attribute. None is given twice, as records may still hold values of one that is gone.
    newest_attribute bigint NOT NULL
);

INSERT INTO project_state (id, changes, newest_datafile, newest_attribute) VALUES (1, 0, 0, 0);

-- Every datafile that was ever active and is kept; of those with one SDK key the last is.
CREATE TABLE datafiles (
    version bigint NOT NULL PRIMARY KEY,
    sdk_key text COLLATE "C" NOT NULL,
    revision text NOT NULL,
    content bytea NOT NULL,
    -- Milliseconds since 1970.
    stored_at bigint NOT NULL,
    author text NOT NULL
);

CREATE INDEX datafiles_by_sdk_key ON datafiles (sdk_key, version);

-- Variations that are forced on users for a test, which no profile shows.
CREATE TABLE forced_variations (
    user_id text COLLATE "C" NOT NULL,
    sdk_key text COLLATE "C" NOT NULL,
    experiment_key text COLLATE "C" NOT NULL,
    variation_key text NOT NULL,
    PRIMARY KEY (user_id, sdk_key, experiment_key)
);

-- Numbers of exposures and goal events rise in the order of commits: who writes holds an advisory lock.
CREATE SEQUENCE event_numbers;

-- The first exposure of each user to each experiment. A row that changes gets a new number.
CREATE TABLE exposures (
    user_id text COLLATE "C" NOT NULL,
    experiment_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    experiment_key text NOT NULL,
    -- The variation of the first exposure.
    variation_id text NOT NULL,
    -- Milliseconds since 1970.
    happened_at bigint NOT NULL,
    -- 1: exposed to more than one variation; 2: the variation was forced on the user.
    flags integer NOT NULL,
    sdk_key text NOT NULL,
    -- A JSON object.
    payload text NOT NULL,
    -- The allocation period under which the user is tallied; 0 if it is not known.
    period bigint NOT NULL,
    PRIMARY KEY (user_id, experiment_id)
);

CREATE INDEX exposures_by_number ON exposures (number);

-- Goals that users reached, in the order of their arrival.
CREATE TABLE goal_events (
    user_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    goal text NOT NULL,
    value double precision NOT NULL,
    happened_at bigint NOT NULL,
    received_at bigint NOT NULL,
    sdk_key text NOT NULL,
    -- The sender's id of the event; one user has no two of one id.
    sender_id text COLLATE "C",
    -- A JSON object.
    payload text NOT NULL,
    PRIMARY KEY (user_id, number)
);

CREATE UNIQUE INDEX goal_events_by_sender ON goal_events (user_id, sender_id) WHERE sender_id IS NOT NULL;
CREATE INDEX goal_events_by_number ON goal_events (number);

-- What one user did for one goal before and since the first exposure to one experiment.
CREATE TABLE user_goals (
    user_id text COLLATE "C" NOT NULL,
    experiment_id text COLLATE "C" NOT NULL,
    goal text COLLATE "C" NOT NULL,
    before_count bigint NOT NULL,
    before_value double precision NOT NULL,
    after_count bigint NOT NULL,
    after_value double precision NOT NULL,
    PRIMARY KEY (user_id, experiment_id, goal)
);

-- The times in which an experiment's traffic allocation stayed the same in one project.
CREATE TABLE allocation_periods (
    experiment_id text COLLATE "C" NOT NULL,
    -- The version of the datafile that began the period.
    number bigint NOT NULL,
    sdk_key text NOT NULL,
    -- When that datafile was stored, in milliseconds since 1970.
    since bigint NOT NULL,
    -- JSON: the trafficAllocation of the datafile.
    allocation text NOT NULL,
    PRIMARY KEY (experiment_id, number)
);

-- Users of a variation and sums over them, see VariationTally. Each transaction adds rows, so that no row is hot; readers
-- add them up, and what is old is folded into one row for each variation and goal.
CREATE TABLE tallies (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    experiment_id text COLLATE "C" NOT NULL,
    variation_id text COLLATE "C" NOT NULL,
    -- Of users: the allocation period; else 0.
    period bigint NOT NULL,
    -- The UTC day of the first exposure, counted from 1970-01-01.
    day bigint NOT NULL,
    -- NULL: a count of users.
    goal text COLLATE "C",
    -- Users: counted, crossed, forced. A goal: events, converted, converted before, converted both.
    counts bigint[] NOT NULL,
    -- Of a goal: y, yy, x, xx and xy, each followed by what does not fit into it.
    sums double precision[] NOT NULL
);

CREATE INDEX tallies_by_experiment ON tallies (experiment_id, goal);

-- What GrowthBook SDKs have assigned, by the value of an attribute that identifies users.
CREATE TABLE sticky_documents (
    -- Erasing a user erases the documents whose value is the user's id.
    attribute_value text COLLATE "C" NOT NULL,
    attribute_name text COLLATE "C" NOT NULL,
    -- A JSON object: variations by experiment and bucket version.
    assignments text NOT NULL,
    PRIMARY KEY (attribute_value, attribute_name)
);

-- What admins did, in the order in which they did it.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Milliseconds since 1970.
    recorded_at bigint NOT NULL,
    author text NOT NULL,
    request_id text NOT NULL,
    action text NOT NULL,
    -- NULL: it is not about a user, or the user has been erased since.
    user_id text COLLATE "C",
    target text NOT NULL,
    -- JSON, or NULL.
    before text,
    after text
);

CREATE INDEX audit_by_time ON audit (recorded_at);
CREATE INDEX audit_by_user ON audit (user_id) WHERE user_id IS NOT NULL;

-- The schema of attributes.
CREATE TABLE attributes (
    number bigint NOT NULL PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    -- A JSON object: "type", and of selections "values" and "multiple".
    definition text NOT NULL
);

-- Attributes that were deleted and whose values are still to be: those of users up to this one are gone.
CREATE TABLE attribute_removals (
    number bigint NOT NULL PRIMARY KEY,
    after_user_id text COLLATE "C" NOT NULL
);

CREATE TABLE segments (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    -- JSON: conditions as an audience of a datafile has them.
    conditions text NOT NULL
);

-- Users who were erased lately, by a hash of their id: events that other servers received of them before must not be
-- stored any more.
CREATE TABLE erasures (
    user_hash bigint NOT NULL PRIMARY KEY,
    -- A random number of the server.
    eraser bigint NOT NULL,
    erased_at timestamptz NOT NULL
);

CREATE INDEX erasures_by_time ON erasures (erased_at);

-- Written by servers that look whether the database can be written.
CREATE TABLE probes (
    slot smallint NOT NULL PRIMARY KEY,
    probed_at timestamptz NOT NULL
);

-- Which server deletes expired and old data: one at a time.
CREATE TABLE leases (
    name text NOT NULL PRIMARY KEY,
    -- A random number of the server.
    holder bigint NOT NULL,
    ends_at timestamptz NOT NULL
);
