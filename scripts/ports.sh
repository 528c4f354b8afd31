# shellcheck shell=bash
# Free loopback ports, remembered in .dev/ports so that addresses stay the same from one `up` to the next.
# They are below 32768: above it the kernel hands ports to outgoing connections, and a listener would find
# its own taken now and then.

PORT_MIN=20000
PORT_MAX=31999

port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

random_free_port() {
    local port tries
    for ((tries = 0; tries < 100; tries++)); do
        port=$((PORT_MIN + SRANDOM % (PORT_MAX - PORT_MIN + 1)))
        if port_is_free "$port"; then
            printf '%s\n' "$port"
            return
        fi
    done
    fail "found no free port between $PORT_MIN and $PORT_MAX"
}

remembered_port() {
    [[ -f $STATE/ports ]] || return 0
    sed -n "s/^$1=\([0-9]\{1,5\}\)\$/\1/p" "$STATE/ports" | tail -n 1
}

# The port of a part that is about to start: the remembered one, or a new one if something else took that.
port_for() {
    local name=$1 port
    port=$(remembered_port "$name")
    if [[ -n $port ]] && port_is_free "$port"; then
        printf '%s\n' "$port"
        return
    fi
    [[ -z $port ]] || say "port $port of $name is taken by something else; choosing another"
    port=$(random_free_port)
    touch "$STATE/ports"
    sed -i "/^$name=/d" "$STATE/ports"
    printf '%s=%s\n' "$name" "$port" >>"$STATE/ports"
    printf '%s\n' "$port"
}
