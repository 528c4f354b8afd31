# shellcheck shell=bash
# The contract's checks. proto/baseline.binpb is the contract as last released: a change that would break a
# client of it is refused. After a release, or for a break that was decided: ./dev proto --renew.

BASELINE=proto/baseline.binpb

check_proto() {
    prepare_state
    need_installed python
    need_tools || fail "buf cannot be had; see $LOGS/tools.log"
    if [[ ${1:-} == --renew ]]; then
        buf build --exclude-source-info --output "$BASELINE"
        say "the present contract is the baseline now: commit $BASELINE"
        return
    fi
    buf lint
    # As two images: buf pairs a folder with an image only where the folder holds a single module; ours has two.
    buf build --output "$STATE/contract.binpb"
    buf breaking "$STATE/contract.binpb" --against "$BASELINE" --config buf.yaml
    say "the contract is clean and breaks nobody"
}
