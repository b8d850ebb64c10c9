# The rows that compare Holdfast over PostgreSQL with PostgreSQL itself, as pgbench drives it: as many clients, one statement
# a transaction, the same table, over TCP as Holdfast. One function each, named row_ROW. For `compare`.

start_postgresql_rows() {
    start_postgresql
    start_holdfast "$postgresql_url"
    say "storing $users profiles"
    profiles user%d "$users" | curl -sf -X POST -T - "$holdfast_url/v1/profiles" >"$work/import.answer"
    grep -q "\"imported\":$users" "$work/import.answer" || fail "the import was not whole: $(cat "$work/import.answer")"
    sql "VACUUM ANALYZE users" "CHECKPOINT"
    cat >"$work/select.sql" <<END
\\set number random(0, $((users - 1)))
SELECT user_id, profile FROM users WHERE user_id = 'user' || :number::text;
END
    # The profile of a real user: what pgbench writes Holdfast reads.
    cat >"$work/upsert.sql" <<END
\\set number random(0, $((users - 1)))
\\set version random(1, 1000000000000)
INSERT INTO users (user_id, version, profile, assignments)
VALUES ('user' || :number::text, :version, '\\x$(sql "SELECT encode(profile, 'hex') FROM users WHERE user_id = 'user1000'")', 3)
ON CONFLICT (user_id) DO UPDATE
SET version = excluded.version, profile = excluded.profile, assignments = excluded.assignments;
END
}

# pgbench_load SCRIPT: prints transactions/s, 0 for the percentiles, which it does not tell, and transactions.
pgbench_load() {
    "$postgresql_programs/pgbench" --no-vacuum --protocol=prepared --client=64 --jobs=2 --time="$seconds" \
        --file="$work/$1.sql" "$postgresql_url" 2>>"$work/pgbench.log" |
        awk '/^number of transactions actually/ { count = $NF } /^tps/ { rate = $3 } END { print int(rate), 0, 0, count }'
}
pgbench_select() { pgbench_load select; }
pgbench_upsert() { pgbench_load upsert; }

row_postgresql_lookup() { side_by_side "PostgreSQL: POST /ups/lookup : pgbench, SELECT" 1.9 pgbench_select holdfast_lookup; }
row_postgresql_save() { side_by_side "PostgreSQL: POST /ups/save : pgbench, upsert" 2.0 pgbench_upsert holdfast_save; }
row_postgresql_decide() {
    # The first decision of a user is a durable write, as an exposure; this row is about those who have theirs.
    seconds=${warm_seconds:-30} load "$holdfast_url" decide >/dev/null
    side_by_side "PostgreSQL: POST /v1/decide, known exposure : pgbench, SELECT" 1.3 pgbench_select holdfast_decide
}
