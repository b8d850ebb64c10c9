-- One row: the latest time that any server is known to have used, so that the time of the database never goes back, even
-- if a machine whose clock is behind takes over.
CREATE TABLE latest_time (
    id smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Milliseconds since 1970.
    time bigint NOT NULL
);

INSERT INTO latest_time (id, time) VALUES (1, 0);
