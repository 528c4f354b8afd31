# shellcheck shell=bash
# `bench`: measures what is promised about speed, on a fresh private Postgres that syncs every commit, with programs
# as they are released. The benches themselves are in tests/src/bin/bench.

# bench NAME [--quick]
run_bench() {
    (($# > 0)) || fail "bench needs a name: engine, timers, recovery or idle"
    local parts=(compiler) code=0 bin
    prepare_state
    need_rust
    [[ -n ${TEST_DATABASE_URL:-} ]] || parts+=(postgres)
    need_installed "${parts[@]}"
    say "building the benches (release)"
    cargo build --locked --release --package holdfast-tests --bin bench 9>&-
    if [[ -z ${TEST_DATABASE_URL:-} ]]; then
        start_test_cluster
        trap end_bench EXIT
        TEST_DATABASE_URL=$(cluster_url "$TEST_HOME")
    fi
    export TEST_DATABASE_URL
    bin=$(bin_folder release)
    # In the background, so that a signal to this script ends it at once, by its id, and the server after it.
    "$bin/bench" "$@" 9>&- &
    BENCH_PID=$!
    wait "$BENCH_PID" || code=$?
    BENCH_PID=''
    return "$code"
}

end_bench() {
    if [[ -n ${BENCH_PID:-} ]]; then
        kill -TERM "$BENCH_PID" 2>/dev/null || true
        wait "$BENCH_PID" || true
    fi
    remove_test_cluster
}
