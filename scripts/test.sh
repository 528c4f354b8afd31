# shellcheck shell=bash
# `test`: every test of the workspace against real stores. Postgres is a fresh private cluster, gone
# afterwards; each test that needs Redis starts its own.

run_tests() {
    prepare_state
    need_rust
    local parts=(compiler redis python)
    [[ -n ${TEST_DATABASE_URL:-} ]] || parts+=(postgres)
    need_installed "${parts[@]}"
    build_for_tests
    if [[ -z ${TEST_DATABASE_URL:-} ]]; then start_test_cluster; fi
    TEST_DATABASE_URL=${TEST_DATABASE_URL:-$(cluster_url "$TEST_HOME")}
    HOLDFAST_BIN_DIR=$(bin_folder dev)
    export TEST_DATABASE_URL HOLDFAST_BIN_DIR
    # A run that was narrowed down by its caller is not slowed by the examples in the docs.
    if (($# == 0)) || [[ $* == "--profile ci" ]]; then cargo test --doc --workspace --locked --quiet; fi
    if need_tools; then
        cargo nextest run --workspace --locked "$@"
    else
        say "cargo-nextest cannot be had (see $LOGS/tools.log); running cargo test instead"
        cargo test --workspace --locked
    fi
}

# Fsync stays on: the tests kill processes and expect to find what was acknowledged.
start_test_cluster() {
    remove_dead_test_clusters
    TEST_HOME=$(postgres_home "test.$$")
    trap remove_test_cluster EXIT
    trap 'exit 130' INT TERM
    start_cluster "$TEST_HOME" "test.$$" 500
}

remove_test_cluster() {
    stop_cluster "$TEST_HOME" || true
    rm -rf -- "$TEST_HOME" "$STATE/test.$$"
    sed -i "/^test\\.$$=/d" "$STATE/ports"
}

# A run that was killed could not clean up behind itself.
remove_dead_test_clusters() {
    local link home owner
    for link in "$STATE"/test.*; do
        [[ -e $link || -L $link ]] || continue
        owner=${link##*.}
        # Its number may belong to another program by now; then its folder waits for the next run.
        [[ ! -d /proc/$owner ]] || continue
        home=$(readlink -f -- "$link" || true)
        [[ ! -d $home ]] || stop_cluster "$home" || true
        rm -rf -- "$home" "$link"
        sed -i "/^test\\.$owner=/d" "$STATE/ports"
    done
}
