# The rows that need large databases, or a server that takes minutes to build: one function each, named row_ROW. Each
# starts its own servers. For `compare`.

# Against the same work done with the usual libraries.
row_hummingbird() {
    start_holdfast "$(database users user%d "$users")"
    start_hummingbird
    hummingbird_get() { load "$hummingbird_url" get; }
    seconds=15 load "$holdfast_url" get >/dev/null
    side_by_side "GET /v1/profiles/{user_id} : Hummingbird + GRDB" 5 hummingbird_get holdfast_get 1
    kill "$hummingbird_process"
    wait "$hummingbird_process" || true
    stop_holdfast
}

# Lookups with 10,000,000 profiles against lookups with 10,000. Two servers in turn would need a warm-up each round, so
# both stay, on two ports.
row_disk() {
    local large small process
    large=$(database large user%08d 10000000)
    small=$(database small user%08d 10000)
    start_holdfast "$small"
    process=$holdfast_process
    holdfast_port=$nginx_port holdfast_url=$nginx_url start_holdfast "$large"
    small_load() { load "$holdfast_url" padded 10000; }
    large_load() { load "$nginx_url" padded 10000000; }
    small_load >/dev/null
    large_load >/dev/null
    side_by_side "lookups, 10,000,000 profiles : 10,000" 0.5 small_load large_load
    stop_holdfast
    holdfast_process=$process
    stop_holdfast
}

row_memory() {
    local before rate time=20 count=1000000
    start_holdfast "$(database million user%d $count)"
    before=$(resident_kib)
    # Longer and longer, until one run has looked up every user.
    while
        read -r rate _ < <(seconds=$time load "$holdfast_url" scan $count)
        [ $((rate * time)) -lt $((count * 11 / 10)) ]
    do
        time=$((time * 2))
    done
    report "resident memory after a scan of 1,000,000 profiles" "$(($(resident_kib) / 1024)) MiB" "256 MiB" \
        "$(divide "$(resident_kib)" $((256 * 1024)))" "<1" \
        "$((before / 1024)) MiB before; $((rate * time)) lookups; of it $(awk '/^RssFile/ { print int($2 / 1024) }' "/proc/$holdfast_process/status") MiB of mapped files"
    stop_holdfast
}

row_idle() {
    local before after alone
    ulimit -n "$(ulimit -Hn)"
    start_holdfast "$(database users user%d "$users")" --max-connections 20000 --idle-timeout 600s
    load "$holdfast_url" get >/dev/null
    busy_load() { load "$holdfast_url" get; }
    alone=()
    local round
    for round in $(seq "$rounds"); do alone+=("$(busy_load | cut -d' ' -f1)"); done
    before=$(resident_kib)
    coproc HOLDER { "$here/hold-connections" "$holdfast_port" 10000; }
    read -r _ <&"${HOLDER[0]}" || fail "the idle connections could not be opened"
    after=$(resident_kib)
    local crowded=()
    for round in $(seq "$rounds"); do crowded+=("$(busy_load | cut -d' ' -f1)"); done
    kill "$HOLDER_PID" 2>/dev/null || true
    local with without
    with=$(whole_median "${crowded[@]}") without=$(whole_median "${alone[@]}")
    report "memory of 10,000 idle connections" "$(((after - before) / 1024)) MiB" "100 MiB" \
        "$(divide $((after - before)) $((100 * 1024)))" "<1" ""
    report "lookups beside 10,000 idle connections : without" "$with/s" "$without/s" "$(divide "$with" "$without")" 0.9 ""
    stop_holdfast
}

row_start() {
    local path round begin times=()
    path=$(database large user%08d 10000000)
    for round in $(seq "$rounds"); do
        is_free "$holdfast_port" || fail "port $holdfast_port is in use"
        begin=$(date +%s%N)
        "$holdfast" serve --listen "127.0.0.1:$holdfast_port" --database "$path" >"$work/holdfast.log" 2>&1 &
        holdfast_process=$!
        until curl -sf "$holdfast_url/readyz" >/dev/null; do :; done
        times+=($((($(date +%s%N) - begin) / 1000000)))
        stop_holdfast
    done
    report "start-up with 10,000,000 profiles" "$(whole_median "${times[@]}") ms" "500 ms" \
        "$(divide "$(whole_median "${times[@]}")" 500)" "<1" "until /readyz answers 200"
}

row_import() {
    local round begin ours=() peers=() count=1000000
    profiles user%d $count >"$work/import.ndjson"
    awk -F'"experiment_bucket_map":' '{ split($1, head, "\""); print head[4] "\t" substr($2, 1, length($2) - 1) }' \
        "$work/import.ndjson" >"$work/import.tsv"
    for round in $(seq "$rounds"); do
        rm -f "$work"/import.db* "$work"/peer.db*
        start_holdfast "$work/import.db"
        begin=$(date +%s%N)
        curl -sf -X POST -T "$work/import.ndjson" "$holdfast_url/v1/profiles" >"$work/import.answer"
        ours+=($((count * 1000 / (($(date +%s%N) - begin) / 1000000))))
        grep -q "\"imported\":$count" "$work/import.answer" || fail "the import was not whole: $(cat "$work/import.answer")"
        stop_holdfast
        begin=$(date +%s%N)
        sqlite3 "$work/peer.db" "PRAGMA journal_mode = WAL" "PRAGMA synchronous = FULL" \
            "CREATE TABLE profiles (user_id TEXT NOT NULL PRIMARY KEY, map TEXT NOT NULL) WITHOUT ROWID" \
            ".mode ascii" '.separator "\t" "\n"' ".import $work/import.tsv profiles" >/dev/null
        peers+=($((count * 1000 / (($(date +%s%N) - begin) / 1000000))))
        [ "$(sqlite3 "$work/peer.db" "SELECT count(*) FROM profiles")" = $count ] || fail "sqlite3 did not import all rows"
        say "import, round $round: ${ours[-1]} rows/s; sqlite3 ${peers[-1]} rows/s"
    done
    report "import of 1,000,000 profiles : sqlite3 .import" "$(whole_median "${ours[@]}") rows/s" "$(whole_median "${peers[@]}") rows/s" \
        "$(divide "$(whole_median "${ours[@]}")" "$(whole_median "${peers[@]}")")" 0.5 ""
}
