# shellcheck shell=bash
# The pinned tools of the checks (scripts/tools.txt) in a Python venv of this checkout: .dev/venv.

# Makes the venv, or renews it when the pins changed, and puts it first on the PATH. Fails without a message
# of its own when a tool cannot be had: the caller decides whether it can do without.
need_tools() {
    local venv=$STATE/venv stamp
    stamp=$(sha256sum "$ROOT/scripts/tools.txt")
    if [[ $(cat "$venv/stamp" 2>/dev/null) != "$stamp" ]]; then
        say "installing the tools of scripts/tools.txt"
        rm -rf -- "$venv"
        python3 -m venv "$venv" >"$LOGS/tools.log" 2>&1 || return 1
        "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
            -r "$ROOT/scripts/tools.txt" >>"$LOGS/tools.log" 2>&1 || return 1
        printf '%s\n' "$stamp" >"$venv/stamp"
    fi
    PATH=$venv/bin:$PATH
}
