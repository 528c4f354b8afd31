# shellcheck shell=bash
# Installs what is missing, by apt and only as root; anyone else is told what to install. Nothing that is
# already there is touched, and no system service is started: Holdfast runs its stores itself, under .dev/.

POSTGRES_MIN=15
REDIS_MIN=7

# The folder of the newest Postgres programs that are new enough; fails if there is none.
postgres_bin() {
    local folder major
    while read -r folder; do
        [[ -x $folder/initdb && -x $folder/pg_ctl && -x $folder/postgres ]] || continue
        major=$("$folder/postgres" --version | sed -E 's/.* ([0-9]+).*/\1/')
        if ((major >= POSTGRES_MIN)); then
            printf '%s\n' "$folder"
            return
        fi
    done < <(
        command -v initdb | xargs -r readlink -f | xargs -r dirname
        # Debian keeps the server's programs off the PATH, one folder per version.
        find /usr/lib/postgresql /usr/pgsql-* -maxdepth 2 -name bin 2>/dev/null | sort -rV
    )
    return 1
}

has_redis() {
    local major
    command -v redis-cli >/dev/null || return 1
    major=$(redis-server --version 2>/dev/null | sed -nE 's/.* v=([0-9]+).*/\1/p')
    [[ -n $major ]] && ((major >= REDIS_MIN))
}

has_compiler() { command -v cc >/dev/null || command -v gcc >/dev/null; }

need_rust() {
    command -v cargo >/dev/null && return
    fail "cargo is not on the PATH. Install Rust with rustup; rust-toolchain.toml picks the version"
}

# need_installed PART…: any of postgres, redis, compiler, python. Installs the missing ones.
need_installed() {
    local part packages=()
    for part in "$@"; do
        case $part in
            postgres) postgres_bin >/dev/null || packages+=(postgresql) ;;
            redis) has_redis || packages+=(redis-server) ;;
            compiler) has_compiler || packages+=(gcc libc6-dev) ;;
            python) python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3-venv) ;;
        esac
    done
    ((${#packages[@]} > 0)) || return 0
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        say "missing: ${packages[*]} (PostgreSQL $POSTGRES_MIN or newer, Redis $REDIS_MIN or newer)"
        say "on Debian or Ubuntu:  sudo apt-get install --no-install-recommends ${packages[*]}"
        fail "or give DATABASE_URL and REDIS_URL of servers that run already (./dev help)"
    fi
    say "installing ${packages[*]}"
    if ! apt_install "${packages[@]}" >"$LOGS/install.log" 2>&1; then
        show_log_end "$LOGS/install.log"
        fail "apt-get could not install ${packages[*]}"
    fi
    for part in "$@"; do
        case $part in
            postgres) postgres_bin >/dev/null || fail "the installed PostgreSQL is older than $POSTGRES_MIN" ;;
            redis) has_redis || fail "the installed Redis is older than $REDIS_MIN" ;;
        esac
    done
}

# In a subshell of its own, so that the marker below is taken away also when it is interrupted.
apt_install() (
    export DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1
    no_main_cluster
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        # 101 tells Debian's packages not to start their services.
        trap 'rm -f -- "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    install=(apt-get install --yes --no-install-recommends -o Dpkg::Options::=--force-confold "$@")
    # The package lists may be missing or old: one renewal, then one more try.
    "${install[@]}" </dev/null 9>&- || { apt-get update </dev/null 9>&- && "${install[@]}" </dev/null 9>&-; }
    # Not at the next boot either.
    [[ ! -d /run/systemd/system || " $* " != *" redis-server "* ]] || systemctl disable redis-server || true
)

# Without this file the Postgres package makes a cluster of its own and starts it.
no_main_cluster() {
    local file=/etc/postgresql-common/createcluster.conf
    [[ ! -e $file ]] || return 0
    mkdir -p "$(dirname "$file")"
    printf 'create_main_cluster = false\n' >"$file"
}
