# shellcheck shell=bash
# `chaos`: what runs for longer than a test may: the engine's simulation over many seeds, and what has a file of its own.

readonly CHAOS_SEEDS=20000

# chaos sim [--seeds N]
run_chaos() {
    local name=${1:-}
    (($# == 0)) || shift
    case $name in
        sim) chaos_sim "$@" ;;
        postgres) chaos_postgres "$@" ;;
        *) fail "chaos needs a name: sim or postgres" ;;
    esac
}

# A seed that breaks a promise is printed; HOLDFAST_SEED=N ./dev test repeats it.
chaos_sim() {
    local seeds=$CHAOS_SEEDS
    while (($# > 0)); do
        case $1 in
            --seeds)
                seeds=${2:-}
                [[ $seeds =~ ^[1-9][0-9]*$ ]] || fail "--seeds needs a number"
                shift 2
                ;;
            *) fail "chaos sim does not know $1" ;;
        esac
    done
    prepare_state
    need_rust
    need_installed compiler
    say "simulating $seeds seeds (release)"
    HOLDFAST_SEEDS=$seeds cargo test --locked --release --package holdfast-saga --test simulation -- \
        --exact promises_hold_whatever_happens --nocapture 9>&-
    say "exploring the larger spaces of the model (release)"
    HOLDFAST_MODEL=large cargo test --locked --release --package holdfast-saga --test model -- \
        large_ --nocapture --test-threads=1 9>&-
}
