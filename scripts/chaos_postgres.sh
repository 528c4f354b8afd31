# shellcheck shell=bash
# `chaos postgres`: Postgres crashed every five seconds for two minutes under a load of orders (case C54). The cluster is
# the test's own; TEST_DATABASE_URL is not used.

chaos_postgres() {
    (($# == 0)) || fail "chaos postgres takes no arguments"
    prepare_state
    need_rust
    need_installed compiler redis postgres
    build_for_tests
    HOLDFAST_CHAOS=1 HOLDFAST_BIN_DIR=$(bin_folder dev) cargo test --locked --package holdfast-tests \
        --test postgres_crashes -- --nocapture 9>&-
}
