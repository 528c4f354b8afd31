# shellcheck shell=bash
# Words to the person at the terminal, and the folders everything lives in. Nothing here starts or changes a thing.
# Sourced by ./dev and .ci/run, which set ROOT.

STATE=$ROOT/.dev
LOGS=$STATE/log
# shellcheck disable=SC2034  # used by the parts sourced after this one
SERVICES=(inventory-svc payment-svc order-svc)

say() { printf 'holdfast: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Makes the state folder; only its owner may look inside .dev/run, which holds passwords.
prepare_state() {
    mkdir -p "$STATE" "$LOGS"
    (umask 077 && mkdir -p "$STATE/run")
}

# One command at a time changes what runs here. The lock ends with this process, whatever happens to it;
# everything started in the background closes descriptor 9, so as not to keep it.
take_lock() {
    prepare_state
    exec 9>"$STATE/lock"
    flock --nonblock 9 || fail "another ./dev command is at work in this checkout"
}

random_hex() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# The last lines of a log, indented, for a failure message.
show_log_end() {
    local log=$1
    [[ -s $log ]] || return 0
    say "the end of $log:"
    tail -n 20 -- "$log" | sed 's/^/    /' >&2
}
