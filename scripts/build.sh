# shellcheck shell=bash
# Builds, and where cargo puts what it built.

PROFILE=${HOLDFAST_PROFILE:-release}

target_folder() {
    local folder=${CARGO_TARGET_DIR:-$ROOT/target}
    # Relative to the root, where cargo runs.
    [[ $folder == /* ]] || folder=$ROOT/$folder
    printf '%s\n' "$folder"
}

bin_folder() {
    case $1 in
        dev) printf '%s/debug\n' "$(target_folder)" ;;
        *) printf '%s/%s\n' "$(target_folder)" "$1" ;;
    esac
}

build_for_up() {
    say "building the services and the day ($PROFILE)"
    # The dev profile is built exactly as `test` builds it, so that nothing is compiled twice.
    if [[ $PROFILE == dev ]]; then
        build_for_tests
    else
        cargo build --locked --profile "$PROFILE" --bin order-svc --bin inventory-svc --bin payment-svc --bin day 9>&-
    fi
}

# Programs and tests in one go: with the same features chosen for both, no dependency is built twice.
build_for_tests() { cargo build --locked --workspace --bins --tests 9>&-; }
