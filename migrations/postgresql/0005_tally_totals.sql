-- The sums of rows that were folded, at most one for each variation and goal unless two servers fold at once; the other
-- rows wait in the order of their numbers. Programs that do not know the column add up all rows nevertheless.
ALTER TABLE tallies ADD COLUMN is_total boolean NOT NULL DEFAULT false;

CREATE INDEX tallies_waiting ON tallies (number) WHERE NOT is_total;
CREATE INDEX tallies_totals ON tallies (experiment_id, variation_id, period, day) WHERE is_total;

-- Rows come and go by thousands a second, whatever the size of the table.
ALTER TABLE tallies SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.5, autovacuum_analyze_threshold = 20000
);

-- Without it, a publication of all tables for logical replication makes migrations fail.
DELETE FROM holdfast_schema AS former USING holdfast_schema AS newer
WHERE former.version < newer.version OR former.version = newer.version AND former.ctid < newer.ctid;
ALTER TABLE holdfast_schema ADD PRIMARY KEY (version);

-- Rows of users without anything: the sweep for expired profiles looks at them, and deletes those that no other table
-- refers to.
UPDATE users SET expires_at = 0 WHERE profile IS NULL AND attributes IS NULL AND expires_at IS NULL;
