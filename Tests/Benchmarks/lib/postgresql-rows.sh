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

# With what it costs a program that only passes lookups on.
row_postgresql_cost() {
    local round program part ours theirs ratios=()
    declare -A costs=()
    start_bare_lookups
    for round in $(seq "$rounds"); do
        for program in holdfast bare; do
            read -ra ours < <("cost_of_$program")
            say "processor time of a lookup, round $round, $program: ${ours[*]} us (client, server, PostgreSQL, all)"
            for part in 0 1 2 3; do costs[$program$part]+=" ${ours[part]}"; done
            [ "$program" = bare ] || theirs=${ours[3]}
        done
        ratios+=("$(divide "$theirs" "${ours[3]}")")
    done
    # shellcheck disable=SC2086
    cost() { printf '%.1f' "$(median ${costs[$1$2]})"; }
    report "PostgreSQL: processor time of POST /ups/lookup : bare C program" "$(cost holdfast 3) us" "$(cost bare 3) us" \
        "$(median "${ratios[@]}")" "<1.05" \
        "client $(cost holdfast 0) us against $(cost bare 0) us, server $(cost holdfast 1) against $(cost bare 1), PostgreSQL $(cost holdfast 2) against $(cost bare 2)"
    stop_bare_lookups
}
cost_of_holdfast() { cost_of_lookups "$holdfast_url" "$holdfast_process"; }
cost_of_bare() { cost_of_lookups "http://127.0.0.1:$bare_port" "$bare_process"; }

# cost_of_lookups URL PROCESS: processor time of a lookup in the client, in the server and in PostgreSQL, and all of it, in
# microseconds.
cost_of_lookups() {
    local server database requests client
    server=$(family_ticks "$2") database=$(family_ticks "$postgresql_process")
    read -r _ _ _ requests < <(load "$1" lookup)
    server=$((($(family_ticks "$2") - server) * tick)) database=$((($(family_ticks "$postgresql_process") - database) * tick))
    client=$(awk 'NF == 2 { time = ($1 + $2) * 1000000 } END { print int(time) }' "$work/client-time")
    awk -v client="$client" -v server="$server" -v database="$database" -v count="$requests" 'BEGIN {
        printf "%.2f %.2f %.2f %.2f\n", client / count, server / count, database / count, (client + server + database) / count
    }'
}

# Processor time of a process and of all its children, also of those that have ended, in clock ticks.
family_ticks() {
    { awk '{ print $14 + $15 + $16 + $17 }' "/proc/$1/stat"
        for process in $(pgrep -P "$1"); do awk '{ print $14 + $15 }' "/proc/$process/stat" 2>/dev/null || true; done
    } | awk '{ ticks += $1 } END { print ticks }'
}

row_postgresql_lookup() { side_by_side "PostgreSQL: POST /ups/lookup : pgbench, SELECT" 1.0 pgbench_select holdfast_lookup; }
row_postgresql_save() { side_by_side "PostgreSQL: POST /ups/save : pgbench, upsert" 2.0 pgbench_upsert holdfast_save; }
row_postgresql_decide() {
    # The first decision of a user is a durable write, as an exposure; this row is about those who have theirs.
    seconds=${warm_seconds:-30} load "$holdfast_url" decide >/dev/null
    side_by_side "PostgreSQL: POST /v1/decide, known exposure : pgbench, SELECT" 1.3 pgbench_select holdfast_decide
}
