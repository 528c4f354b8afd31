# shellcheck shell=bash
# The private Redis of `up`: loopback only, password from a random file, append-only file under .dev/redis.
# Inventory needs no persistence of it; a developer's machine keeps it so that `down` and `up` are quick.

redis_password() {
    local file=$STATE/run/redis.password
    [[ -s $file ]] || (umask 077 && random_hex >"$file")
    cat "$file"
}

start_redis() {
    ! is_running redis || return 0
    local port config=$STATE/run/redis.conf
    port=$(port_for redis)
    [[ -d $STATE/redis ]] || mkdir -m 700 "$STATE/redis"
    # The password stands in a file, not on the command line, where every user of the machine could read it.
    (
        umask 077
        cat >"$config" <<CONFIG
bind 127.0.0.1
port $port
requirepass $(redis_password)
dir $STATE/redis
appendonly yes
save ""
maxmemory-policy noeviction
daemonize no
CONFIG
    )
    start_process redis redis-server "$config"
    wait_for_port redis "$port"
    wait_for_redis_data "$port"
}

# It listens before it has read its append-only file.
wait_for_redis_data() {
    local ticks
    for ((ticks = 0; ticks < 1200; ticks++)); do
        [[ $(REDISCLI_AUTH=$(redis_password) redis-cli -h 127.0.0.1 -p "$1" ping 2>/dev/null) != PONG ]] || return 0
        sleep 0.05
    done
    show_log_end "$LOGS/redis.log"
    fail "Redis did not load its data within 60 s"
}

redis_url() { printf 'redis://default:%s@127.0.0.1:%s/0\n' "$(redis_password)" "$(remembered_port redis)"; }
