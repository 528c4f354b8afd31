# shellcheck shell=bash
# Processes that outlive ./dev: started apart from the terminal, known by id and start time, ended by id only.

STOP_TICKS=200 # of 50 ms: how long a process may take to end by itself

pid_file() { printf '%s/run/%s.pid\n' "$STATE" "$1"; }

# The kernel's start time of a process. Together with the id it names one process for good: an id alone is
# handed out again.
start_time() {
    local line fields
    line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The second field is the program's name in brackets and may hold spaces.
    read -ra fields <<<"${line##*) }"
    [[ ${fields[0]} != Z ]] || return 1
    printf '%s\n' "${fields[19]}"
}

# Prints the id of a part if that very process still runs.
running_pid() {
    local pid started
    read -r pid started 2>/dev/null <"$(pid_file "$1")" || return 1
    [[ $(start_time "$pid") == "$started" ]] || return 1
    printf '%s\n' "$pid"
}

is_running() { running_pid "$1" >/dev/null; }

# start_process NAME COMMAND…: in a session of its own, so that Ctrl-C at the terminal does not reach it.
start_process() {
    local name=$1 pid
    shift
    setsid nohup "$@" >>"$LOGS/$name.log" 2>&1 </dev/null 9>&- &
    pid=$!
    printf '%s %s\n' "$pid" "$(start_time "$pid" || true)" >"$(pid_file "$name")"
}

# Waits until a part listens on its port; fails at once when its process ended.
wait_for_port() {
    local name=$1 port=$2 ticks
    for ((ticks = 0; ticks < 1200; ticks++)); do
        is_running "$name" || break
        port_is_free "$port" || return 0
        sleep 0.05
    done
    if is_running "$name"; then
        say "$name did not listen on port $port within 60 s"
    else
        say "$name ended at its start"
    fi
    show_log_end "$LOGS/$name.log"
    return 1
}

# Asks all parts named to end, then waits for each; one that does not end is killed.
stop_processes() {
    local name pid ticks
    for name in "$@"; do
        ! pid=$(running_pid "$name") || kill -TERM "$pid" 2>/dev/null || true
    done
    for name in "$@"; do
        for ((ticks = 0; ticks < STOP_TICKS; ticks++)); do
            is_running "$name" || break
            sleep 0.05
        done
        if pid=$(running_pid "$name"); then
            say "$name ($pid) did not end by itself within 10 s: killed"
            kill -KILL "$pid" 2>/dev/null || true
        fi
        rm -f -- "$(pid_file "$name")"
    done
}
