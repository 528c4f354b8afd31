# shellcheck shell=bash
# Private Postgres clusters: one for `up`, kept in .dev/postgres, and a fresh one per `test`. Loopback only,
# password from a random file, durable as in production (fsync and synchronous_commit stay on).
#
# A cluster has a home folder: data/, log, password. As root the home belongs to user postgres, because
# Postgres refuses to run as root.

as_postgres() {
    if ((EUID == 0)); then
        # From / because user postgres may not be let into the caller's folder.
        (cd / && exec runuser -u postgres -- "$@")
    else
        "$@"
    fi
}

# Prints the home of the cluster NAME, making it when it is new. Where user postgres cannot reach the
# checkout, the home is under /var/tmp and .dev/NAME links to it: opening up the folders above the checkout
# is not ours to do.
postgres_home() {
    local name=$1 home=$STATE/$1 away
    if [[ ! -d $home ]]; then
        rm -f -- "$home" # a link whose folder was cleaned away
        mkdir -m 700 -- "$home"
        if ((EUID == 0)); then
            chown postgres: -- "$home"
            if ! as_postgres test -w "$home"; then
                rmdir -- "$home"
                away=$(away_folder)
                [[ -d $away/$name ]] || mkdir -m 700 -- "$away/$name"
                chown postgres: -- "$away/$name"
                as_postgres test -w "$away/$name" || fail "user postgres can reach neither $STATE nor $away"
                ln -s -- "$away/$name" "$home"
            fi
        fi
    fi
    readlink -f -- "$home"
}

# A folder of this checkout under /var/tmp. Its name can be foretold, so one that somebody else made is refused.
away_folder() {
    local away
    away=/var/tmp/holdfast-$(printf %s "$ROOT" | sha256sum | cut -c1-12)
    mkdir -m 711 -- "$away" 2>/dev/null || true
    [[ -d $away && -O $away && ! -L $away ]] || fail "$away exists and is not ours"
    printf '%s\n' "$away"
}

make_cluster() {
    local bin=$1 home=$2
    # shellcheck disable=SC2016  # $1 is for the inner shell
    random_hex | as_postgres sh -c 'umask 077; cat >"$1"' sh "$home/password"
    as_postgres "$bin/initdb" --pgdata "$home/data" --username holdfast --pwfile "$home/password" \
        --auth-host scram-sha-256 --auth-local scram-sha-256 --encoding UTF8 --locale C \
        >"$LOGS/initdb.log" 2>&1 || {
        show_log_end "$LOGS/initdb.log"
        fail "initdb failed"
    }
}

# start_cluster HOME PORT_NAME MAX_CONNECTIONS: makes it when it is new, starts it when it is not running.
start_cluster() {
    local home=$1 port_name=$2 connections=$3 bin port options
    bin=$(postgres_bin)
    as_postgres test -f "$home/data/PG_VERSION" || make_cluster "$bin" "$home"
    ! cluster_is_running "$home" || return 0
    port=$(port_for "$port_name")
    # No socket file: its default folder may be missing or closed, and TCP is what the services use.
    options="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=$connections"
    options+=" -c shared_buffers=256MB -c max_wal_size=2GB"
    # Where it is installed, whoever wants to see what statements cost can switch it on; until then it costs nothing.
    if [[ -e $("$bin/pg_config" --pkglibdir 2>/dev/null)/pg_stat_statements.so ]]; then
        options+=" -c shared_preload_libraries=pg_stat_statements -c pg_stat_statements.track=none"
    fi
    as_postgres "$bin/pg_ctl" --pgdata "$home/data" --log "$home/log" --wait --timeout 60 --options "$options" \
        start >/dev/null 9>&- || {
        show_log_end "$home/log"
        fail "Postgres did not start; if $home/data is from another version, remove $home"
    }
}

cluster_is_running() {
    as_postgres "$(postgres_bin)/pg_ctl" --pgdata "$1/data" status >/dev/null 2>&1
}

stop_cluster() {
    ! cluster_is_running "$1" || as_postgres "$(postgres_bin)/pg_ctl" --pgdata "$1/data" --mode fast --wait stop >/dev/null
}

# The address of a running cluster's maintenance database.
cluster_url() {
    local home=$1 port
    port=$(sed -n 4p "$home/data/postmaster.pid")
    printf 'postgres://holdfast:%s@127.0.0.1:%s/postgres\n' "$(cat "$home/password")" "$port"
}

# url_with_database URL NAME: the same server and settings, another database.
url_with_database() {
    local url=$1 name=$2 query='' server
    [[ $url != *\?* ]] || query="?${url#*\?}"
    url=${url%%\?*}
    server=$(sed -E 's#^([a-z]+://[^/]*).*#\1#' <<<"$url")
    printf '%s/%s%s\n' "$server" "$name" "$query"
}

# make_database ADMIN_URL NAME
make_database() {
    local url=$1 name=$2 psql
    psql=$(command -v psql || printf '%s/psql' "$(postgres_bin)")
    [[ -x $psql ]] || fail "psql is missing: install it, or give ORDERS_, INVENTORY_ and PAYMENT_DATABASE_URL"
    if [[ -z $("$psql" -XAtq -d "$url" -c "select 1 from pg_database where datname = '$name'") ]]; then
        "$psql" -XAtq -d "$url" -c "create database $name"
    fi
}
