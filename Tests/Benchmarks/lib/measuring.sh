# Measuring and reporting. For `compare`.

# Microseconds of a clock tick.
tick=$((1000000 / $(getconf CLK_TCK)))

# load URL KIND [USERS [CONNECTIONS [THREADS]]]: prints requests/s, p99 and p99.9 in microseconds, requests. The seconds
# that the client used of the processor, in user mode and in the kernel, are then in `client-time`.
load() {
    local result TIMEFORMAT="%3U %3S"
    result=$({
        time wrk -t "${5:-2}" -c "${4:-64}" -d "${seconds}s" --latency -s "$here/requests.lua" "$1" -- \
            "$2" "${3:-$users}"
    } 2>"$work/client-time" | awk '$1 == "RESULT" { print $2, $3, $4, $5, $6 }')
    [ -n "$result" ] || fail "wrk failed on $2"
    [ "${result##* }" = 0 ] || say "warning: ${result##* } requests of '$2' to $1 failed"
    echo "${result% *}"
}

# Durable SETs as many as fill a round: prints requests/s, p99 in microseconds, 0 for p99.9, which is not told, requests.
redis_load() {
    local count=$((seconds * ${redis_rate:-30000}))
    redis-benchmark -p "$redis_port" -t set -c 64 -d 150 -r 200000 -n "$count" --csv |
        awk -F, -v count="$count" '/SET/ { gsub(/"/, ""); print int($2), int($7 * 1000), 0, count }'
}

resident_kib() {
    awk '/^VmRSS/ { print $2 }' "/proc/$holdfast_process/status"
}

median() {
    printf '%s\n' "$@" | sort -g | awk '{ value[NR] = $1 } END { print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'
}

whole_median() {
    printf '%.0f' "$(median "$@")"
}

divide() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", b ? a / b : 0 }'
}

# Whether a number is at least another.
at_least() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }'
}

# Processor time of all servers that run, in clock ticks: of the one that is under load, as the others have nothing to
# do. It says more than time does while the machine has other work.
server_ticks() {
    local process processes=("${servers[@]}")
    for process in "${servers[@]}"; do processes+=($(pgrep -P "$process" || true)); done
    for process in "${processes[@]}"; do cat "/proc/$process/stat" 2>/dev/null || true; done |
        awk '{ ticks += $14 + $15 } END { print ticks }'
}

# side_by_side ROW WANTED PEER OURS [LIMIT]: rounds of the two commands, which print what `load` does,
# alternating; PEER and OURS are names of functions without arguments. LIMIT: p99 may be so many times the peer's.
side_by_side() {
    local row=$1 wanted=$2 peer=$3 ours=$4 limit=${5:-} note round rate p99 tail peer_rate peer_p99 peer_tail
    local requests peer_requests start middle end
    local rates=() p99s=() tails=() peer_rates=() peer_p99s=() ratios=() costs=() peer_costs=()
    for round in $(seq "$rounds"); do
        start=$(server_ticks)
        read -r rate p99 tail requests < <($ours)
        middle=$(server_ticks)
        read -r peer_rate peer_p99 peer_tail peer_requests < <($peer)
        end=$(server_ticks)
        say "$row, round $round: $rate/s, p99 $p99 us, p99.9 $tail us; peer $peer_rate/s, p99 $peer_p99 us"
        rates+=("$rate") p99s+=("$p99") tails+=("$tail") peer_rates+=("$peer_rate") peer_p99s+=("$peer_p99")
        ratios+=("$(divide "$rate" "$peer_rate")")
        costs+=("$(divide $(((middle - start) * tick)) "$requests")")
        peer_costs+=("$(divide $(((end - middle) * tick)) "$peer_requests")")
    done
    p99=$(whole_median "${p99s[@]}") peer_p99=$(whole_median "${peer_p99s[@]}")
    note="p99 $p99 us"
    # pgbench does not tell, and its backends have ended with their processor time.
    [ "$peer_p99" = 0 ] || note="$note against $peer_p99 us"
    [ -z "$limit" ] || note="$note, $(divide "$p99" "$peer_p99") (wanted: at the most $limit)"
    note="$note; p99.9 $(whole_median "${tails[@]}") us; $(median "${costs[@]}") us of processor time a request"
    [ "$peer_p99" = 0 ] || note="$note against $(median "${peer_costs[@]}") us"
    report "$row" "$(whole_median "${rates[@]}")/s" "$(whole_median "${peer_rates[@]}")/s" "$(median "${ratios[@]}")" "$wanted" "$note"
}

# report ROW FIGURE PEER RATIO WANTED NOTE: adds a line to the table. WANTED is a number that the ratio must reach, or
# "<" and one that it must not exceed.
report() {
    local verdict=no
    case "$5" in
        "<"*) at_least "${5#<}" "$4" && verdict=yes ;;
        *) at_least "$4" "$5" && verdict=yes ;;
    esac
    echo "| $1 | $2 | $3 | $4 | $5 | $verdict | $6 |" >>"$work/table"
}

skip() {
    echo "| $1 | – | – | – | – | – | $2 |" >>"$work/table"
}

print_table() {
    echo
    echo "| row | holdfast | peer | ratio | wanted | reached | latency, notes |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    cat "$work/table"
    echo
    echo "$(nproc) cores, $rounds rounds of $seconds s, medians; load before $load_before, after $(cut -d' ' -f1-3 /proc/loadavg)"
}
