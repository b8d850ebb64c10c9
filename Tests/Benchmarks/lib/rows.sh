# The rows that take some seconds a round: one function each, named row_ROW. For `compare`.

start_short_rows() {
    # Afresh, as these rows add to it.
    rm -f "$work"/users.db*
    start_holdfast "$(database users user%d "$users")"
    start_nginx
    start_redis
    redis_rate=$(seconds=1 redis_load | cut -d' ' -f1)
    say "redis-server makes $redis_rate durable writes/s"
    # Every event loop has a cache of its own, which is warm when most users have been asked for on each.
    say "warming up"
    seconds=15 load "$holdfast_url" get >/dev/null
}

holdfast_get() { load "$holdfast_url" get; }
nginx_get() { load "$nginx_url" get; }
row_get() { side_by_side "GET /v1/profiles/{user_id} : nginx" 0.9 nginx_get holdfast_get 1; }

holdfast_lookup() { load "$holdfast_url" lookup; }
nginx_lookup() { load "$nginx_url" lookup; }
row_lookup() { side_by_side "POST /ups/lookup : nginx" 0.8 nginx_lookup holdfast_lookup; }

holdfast_save() { load "$holdfast_url" save; }
row_save() { side_by_side "POST /ups/save : redis SET" 1.0 redis_load holdfast_save; }

holdfast_decide() { load "$holdfast_url" decide; }
nginx_decide() { load "$nginx_url" decide; }
row_decide() {
    decide_once >/dev/null || { skip "POST /v1/decide : nginx" "the server does not answer it"; return; }
    # The first decision of a user is a durable write, as an exposure; this row is about those who have theirs.
    seconds=20 load "$holdfast_url" decide >/dev/null
    side_by_side "POST /v1/decide, known exposure : nginx" 0.4 nginx_decide holdfast_decide
}

holdfast_ofrep() { load "$holdfast_url" ofrep; }
row_ofrep() {
    decide_once >/dev/null || { skip "OFREP : /v1/decide" "the server does not answer it"; return; }
    seconds=20 load "$holdfast_url" decide >/dev/null
    side_by_side "OFREP, one flag of a known user : POST /v1/decide" 0.9 holdfast_decide holdfast_ofrep
}

holdfast_expose() { load "$holdfast_url" expose; }
row_expose() { side_by_side "POST /v1/decide, first exposure : redis SET" 0.3 redis_load holdfast_expose; }

holdfast_goal() { load "$holdfast_url" goal; }
row_goal() {
    # Exposes the users, so that their goals count.
    seconds=20 load "$holdfast_url" decide >/dev/null
    side_by_side "POST /v1/events, a goal : redis SET" 0.3 redis_load holdfast_goal
}

holdfast_assign() { load "$holdfast_url" assign; }
row_assign() { side_by_side "POST /v1/assign, new user : redis SET" 0.7 redis_load holdfast_assign; }

# 60 connections do KIND; 4 more only look up, and tell how long lookups take meanwhile.
probed() {
    local rate probe_rate p99 tail requests probe_requests
    load "$holdfast_url" get "$users" 4 1 >"$work/probe" &
    local probe=$!
    read -r rate _ _ requests < <(load "$holdfast_url" "$1" "$users" 60)
    wait "$probe"
    read -r probe_rate p99 tail probe_requests <"$work/probe"
    echo $((rate + probe_rate)) "$p99" "$tail" $((requests + probe_requests))
}
mixed_load() { probed mixed; }
lookups_load() { probed get; }
row_mixed() { side_by_side "95% lookups, 5% saves : lookups alone (p99 of lookups)" 0.7 lookups_load mixed_load 3; }

# Of users who have a variation and whose exposure is known: the edge answers them from its copy.
edge_decide() { load "$edge_url" decide; }
row_edge() {
    decide_once >/dev/null || { skip "edge : plain server" "the server does not answer it"; return; }
    start_edge
    seconds=20 load "$holdfast_url" visit >/dev/null
    seconds=20 load "$edge_url" visit >/dev/null
    until edge_has_sent; do sleep 0.2; done
    side_by_side "POST /v1/decide on an edge, known exposure : on its upstream" 0.95 holdfast_decide edge_decide
    stop_edge
}
