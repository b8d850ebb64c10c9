# Starting and stopping what is compared. For `compare`.

# Installs what is missing, without starting the services that come with it.
install_peers() {
    local missing="" package as_root="" packages="wrk nginx-light redis-server redis-tools sqlite3 curl python3"
    case "$rows" in *postgresql*) packages="$packages postgresql libpq-dev" ;; esac
    for package in $packages; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
    done
    case "$missing" in *nginx-light*) command -v nginx >/dev/null && missing="${missing/ nginx-light/}" ;; esac
    [ -z "$missing" ] && return
    [ "$(id -u)" = 0 ] || as_root="sudo"
    local policy=/usr/sbin/policy-rc.d made=""
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
        $as_root chmod +x "$policy"
        made=yes
    fi
    $as_root apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
    [ -z "$made" ] || $as_root rm -f "$policy"
}

servers=()

stop_all() {
    local process
    for process in $(jobs -p); do kill "$process" 2>/dev/null || true; done
    wait
    servers=()
}

# wait_for WHAT COMMAND…: until the command succeeds, 30 s at most.
wait_for() {
    local what=$1 attempt
    shift
    for attempt in $(seq 600); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.05
    done
    fail "$what did not start; see $work"
}

is_free() {
    ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# A process id in `holdfast_process`; further arguments go to `holdfast serve`.
start_holdfast() {
    local database=$1
    shift
    is_free "$holdfast_port" || fail "port $holdfast_port is in use"
    "$holdfast" serve --listen "127.0.0.1:$holdfast_port" --database "$database" --datafile "$here/datafile.json" "$@" \
        >"$work/holdfast.log" 2>&1 &
    holdfast_process=$!
    servers+=($!)
    wait_for holdfast curl -sf "$holdfast_url/readyz"
}

stop_holdfast() {
    kill "$holdfast_process"
    wait "$holdfast_process" || true
}

# An edge of Holdfast, which must be running: with a copy of all its users.
start_edge() {
    is_free "$edge_port" || fail "port $edge_port is in use"
    rm -f "$work"/edge.db*
    HOLDFAST_UPSTREAM_TOKEN="" "$holdfast" serve --listen "127.0.0.1:$edge_port" --database "$work/edge.db" \
        --upstream "$holdfast_url" >"$work/edge.log" 2>&1 &
    edge_process=$!
    servers+=($!)
    wait_for "the edge" edge_is_complete
}

edge_is_complete() { curl -sf "$edge_url/metrics" | grep -q "^holdfast_edge_copy_complete 1"; }

edge_has_sent() { curl -sf "$edge_url/metrics" | grep -q "^holdfast_edge_outbox_events 0"; }

stop_edge() {
    kill "$edge_process"
    wait "$edge_process" || true
}

# With the bodies that Holdfast answers, which must be running.
start_nginx() {
    is_free "$nginx_port" || fail "port $nginx_port is in use"
    local profile decision
    profile=$(curl -s "$holdfast_url/v1/profiles/user100000")
    decision=$(decide_once) || decision='{}'
    sed -e "s|@PORT@|$nginx_port|" -e "s|@PROFILE@|$profile|" -e "s|@DECISION@|$decision|" \
        "$here/nginx.conf" >"$work/nginx.conf"
    nginx -p "$work" -c "$work/nginx.conf" -e "$work/nginx.log" &
    servers+=($!)
    wait_for nginx curl -sf "$nginx_url/"
}

start_redis() {
    is_free "$redis_port" || fail "port $redis_port is in use"
    redis-server --port "$redis_port" --bind 127.0.0.1 --dir "$work" --save "" --appendonly yes --appendfsync always \
        >"$work/redis.log" 2>&1 &
    servers+=($!)
    wait_for redis-server redis-cli -p "$redis_port" ping
}

# Built on first use, which takes minutes. With the same users as Holdfast's.
start_hummingbird() {
    is_free "$hummingbird_port" || fail "port $hummingbird_port is in use"
    local build=(swift build -c release --package-path "$here/HummingbirdPeer" --scratch-path "$here/../../.build/hummingbird-peer")
    "${build[@]}" >&2
    "$("${build[@]}" --show-bin-path)/peer" \
        "$hummingbird_port" "$work/hummingbird.db" "$users" >"$work/hummingbird.log" 2>&1 &
    hummingbird_process=$!
    servers+=($!)
    wait_for hummingbird curl -sf "$hummingbird_url/v1/profiles/user0"
}

# One decision of a user who has a variation; fails while the server has no such route.
decide_once() {
    curl -sf "$holdfast_url/v1/decide?keys=checkout_flag" -H "X-Optimizely-SDK-Key: benchmark" \
        -H "Content-Type: application/json" -d '{"userId":"user100000","userAttributes":{"country":"us","age":32}}'
}

# profiles FORMAT COUNT: so many users with three assignments each, as NDJSON; FORMAT is printf's, of the user id.
profiles() {
    awk -v format="$1" -v count="$2" 'BEGIN {
        line = "{\"user_id\":\"" format "\",\"experiment_bucket_map\":{\"10001\":{\"variation_id\":\"%d\"},\"10002\":{\"variation_id\":\"%d\"},\"7001\":{\"variation_id\":\"7001%d\"}}}\n"
        for (i = 0; i < count; i++) printf line, i, 20000 + i % 97, 30000 + i % 89, 1 + i % 2
    }'
}

# database NAME FORMAT COUNT: the path of a database of such users, which is made if it is not there.
database() {
    local path="$work/$1.db"
    if [ ! -e "$path" ]; then
        say "making a database of $3 profiles"
        profiles "$2" "$3" | "$holdfast" import --create --database "$path" >&2
    fi
    echo "$path"
}

as_postgres() {
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --init-groups "$@"; else "$@"; fi
}

# A new server with Debian's settings, except for memory and the number of connections. It refuses to run as root.
start_postgresql() {
    is_free "$postgresql_port" || fail "port $postgresql_port is in use"
    postgresql_programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
    postgresql_url=postgresql://postgres@127.0.0.1:$postgresql_port/postgres
    postgresql_data=$(mktemp -d)
    [ "$(id -u)" != 0 ] || chown postgres "$postgresql_data"
    as_postgres "$postgresql_programs/initdb" -D "$postgresql_data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 \
        >"$work/initdb.log" 2>&1 || fail "initdb failed; see $work/initdb.log"
    (cd "$postgresql_data" && exec setpriv $([ "$(id -u)" != 0 ] || echo --reuid=postgres --regid=postgres --init-groups) \
        "$postgresql_programs/postgres" -D "$postgresql_data" -p "$postgresql_port" -c listen_addresses=127.0.0.1 \
        -c unix_socket_directories="$postgresql_data" -c max_connections=200 -c shared_buffers=512MB \
        -c synchronous_commit=on) >"$work/postgresql.log" 2>&1 &
    postgresql_process=$!
    servers+=($!)
    wait_for postgresql "$postgresql_programs/pg_isready" -h 127.0.0.1 -p "$postgresql_port"
}

# With as many event loops as Holdfast.
start_bare_lookups() {
    is_free "$bare_port" || fail "port $bare_port is in use"
    cc -O2 -I "$(pg_config --includedir)" "$here/bare-lookups.c" -lpq -lpthread -o "$work/bare-lookups"
    "$work/bare-lookups" "$bare_port" "$postgresql_url" "$(nproc)" &
    bare_process=$!
    servers+=($!)
    wait_for bare-lookups curl -sf "http://127.0.0.1:$bare_port/ups/lookup" -d '{"user_id":"user0"}'
}

stop_bare_lookups() {
    kill "$bare_process"
    wait "$bare_process" || true
}

# sql STATEMENT…: prints the rows.
sql() {
    local statement options=()
    for statement in "$@"; do options+=(--command="$statement"); done
    psql --no-psqlrc --quiet --tuples-only --no-align "${options[@]}" "$postgresql_url"
}
