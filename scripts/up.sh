# shellcheck shell=bash
# `up`, `down`, `status`, `logs`: the whole system on this machine, and the real day of orders through it.

up() {
    local once=0 day_args=() code=0
    while (($# > 0)); do
        case $1 in
            --once) once=1 ;;
            --year) day_args+=(--year) ;;
            *) fail "up knows --once and --year, not $1" ;;
        esac
        shift
    done
    take_lock
    # Until everything stands, a failure or Ctrl-C takes down what was started.
    trap stop_everything EXIT
    trap 'exit 130' INT TERM
    need_rust
    need_stores
    start_stores
    build_for_up
    start_services
    say "replaying real orders through the gRPC API"
    run_day "${day_args[@]}" || code=$?
    if ((once)); then
        stop_everything
        trap - EXIT
        exit "$code"
    fi
    trap - EXIT
    show_addresses
    say "everything stays up; stop it with ./dev down"
    exit "$code"
}

down() {
    local data=${1:-}
    [[ -z $data || $data == --data ]] || fail "down knows --data, not $data"
    take_lock
    stop_everything
    if [[ -z $data ]]; then
        say "stopped; the data stays in .dev/"
        return
    fi
    if [[ -d $STATE/postgres ]]; then rm -rf -- "$(postgres_home postgres)"; fi
    rm -rf -- "$STATE/postgres" "$STATE/redis"
    say "stopped, and the data removed"
}

stop_everything() {
    stop_processes order-svc inventory-svc payment-svc
    stop_processes redis
    if [[ -d $STATE/postgres/data ]]; then stop_cluster "$(postgres_home postgres)"; fi
}

gives_all_databases() {
    [[ -n ${ORDERS_DATABASE_URL:-} && -n ${INVENTORY_DATABASE_URL:-} && -n ${PAYMENT_DATABASE_URL:-} ]]
}

need_stores() {
    local parts=(compiler)
    [[ -n ${DATABASE_URL:-} ]] || gives_all_databases || parts+=(postgres)
    [[ -n ${REDIS_URL:-} ]] || parts+=(redis)
    need_installed "${parts[@]}"
}

# Starts what was not given, and sets the four addresses the services need.
start_stores() {
    local admin home
    if ! gives_all_databases; then
        admin=${DATABASE_URL:-}
        if [[ -z $admin ]]; then
            say "starting Postgres"
            home=$(postgres_home postgres)
            start_cluster "$home" postgres 200
            admin=$(cluster_url "$home")
        fi
        ORDERS_DATABASE_URL=${ORDERS_DATABASE_URL:-$(service_database "$admin" orders)}
        INVENTORY_DATABASE_URL=${INVENTORY_DATABASE_URL:-$(service_database "$admin" inventory)}
        PAYMENT_DATABASE_URL=${PAYMENT_DATABASE_URL:-$(service_database "$admin" payment)}
    fi
    if [[ -z ${REDIS_URL:-} ]]; then
        say "starting Redis"
        start_redis
        REDIS_URL=$(redis_url)
    fi
    export ORDERS_DATABASE_URL INVENTORY_DATABASE_URL PAYMENT_DATABASE_URL REDIS_URL
    # For status and for a program that wants to look inside; not for other users' eyes.
    (
        umask 077
        printf '%s=%s\n' ORDERS_DATABASE_URL "$ORDERS_DATABASE_URL" INVENTORY_DATABASE_URL "$INVENTORY_DATABASE_URL" \
            PAYMENT_DATABASE_URL "$PAYMENT_DATABASE_URL" REDIS_URL "$REDIS_URL" >"$STATE/run/addresses"
    )
}

service_database() {
    make_database "$1" "$2"
    url_with_database "$1" "$2"
}

# The programs may be newer than the processes, so services are always started afresh.
start_services() {
    local bin name order inventory payment
    bin=$(bin_folder "$PROFILE")
    stop_processes order-svc inventory-svc payment-svc
    order=$(port_for order-svc)
    inventory=$(port_for inventory-svc)
    payment=$(port_for payment-svc)
    export ORDER_URL=http://127.0.0.1:$order INVENTORY_URL=http://127.0.0.1:$inventory PAYMENT_URL=http://127.0.0.1:$payment
    say "starting the services"
    start_process inventory-svc env HOLDFAST_LISTEN="127.0.0.1:$inventory" DATABASE_URL="$INVENTORY_DATABASE_URL" \
        "$bin/inventory-svc"
    start_process payment-svc env HOLDFAST_LISTEN="127.0.0.1:$payment" DATABASE_URL="$PAYMENT_DATABASE_URL" \
        "$bin/payment-svc"
    start_process order-svc env HOLDFAST_LISTEN="127.0.0.1:$order" DATABASE_URL="$ORDERS_DATABASE_URL" \
        "$bin/order-svc"
    for name in "${SERVICES[@]}"; do
        wait_for_port "$name" "$(remembered_port "$name")" || fail "$name is not up"
    done
}

# The report is the only thing on standard output.
run_day() {
    ORDERS_URL=$ORDER_URL DATABASE_URL=$ORDERS_DATABASE_URL "$(bin_folder "$PROFILE")/day" "$@" 9>&-
}

show_addresses() {
    local name
    say "addresses:"
    for name in "${SERVICES[@]}"; do
        printf '    %-14s http://127.0.0.1:%s (gRPC, with reflection)\n' "$name" "$(remembered_port "$name")" >&2
    done
    printf '    %-14s %s\n' orders "$ORDERS_DATABASE_URL" inventory "$INVENTORY_DATABASE_URL" \
        payment "$PAYMENT_DATABASE_URL" redis "$REDIS_URL" logs "$LOGS" jaeger "${JAEGER_URL:-not given}" >&2
}

status() {
    local name pid
    for name in "${SERVICES[@]}" redis; do
        if pid=$(running_pid "$name"); then
            printf '%-14s running  127.0.0.1:%-6s process %s\n' "$name" "$(remembered_port "$name")" "$pid"
        else
            printf '%-14s stopped\n' "$name"
        fi
    done
    if [[ -d $STATE/postgres/data ]] && cluster_is_running "$(postgres_home postgres)"; then
        printf '%-14s running  127.0.0.1:%-6s process %s\n' postgres "$(remembered_port postgres)" \
            "$(head -n 1 "$STATE/postgres/data/postmaster.pid")"
    else
        printf '%-14s stopped\n' postgres
    fi
}

logs() {
    local name log names=("${SERVICES[@]}" redis postgres)
    (($# == 0)) || names=("$@")
    for name in "${names[@]}"; do
        log=$LOGS/$name.log
        [[ $name != postgres ]] || log=$STATE/postgres/log
        if [[ ! -f $log ]]; then
            say "no log of $name: is it one of ${SERVICES[*]} redis postgres, and was it ever started?"
            continue
        fi
        # One part alone is for reading or piping; several are told apart by a heading.
        ((${#names[@]} == 1)) || printf '==> %s <==\n' "$log"
        tail -n "$((${#names[@]} == 1 ? 500 : 20))" -- "$log"
    done
}
