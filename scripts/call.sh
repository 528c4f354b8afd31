# shellcheck shell=bash
# `call`: one gRPC call to what `up` started, by server reflection; requests and answers are JSON.

# call SERVICE/METHOD [JSON]
call() {
    local method=${1:-} json=${2:-'{}'} name
    case $method in
        orders.*) name=order-svc ;;
        inventory.*) name=inventory-svc ;;
        payment.*) name=payment-svc ;;
        *) fail "call needs a method such as orders.v1.OrderService/GetOrder, not '$method'" ;;
    esac
    is_running "$name" || fail "$name does not run: ./dev up"
    prepare_state
    need_installed python
    need_tools || fail "buf cannot be had; see $LOGS/tools.log"
    buf curl --protocol grpc --http2-prior-knowledge --data "$json" \
        "http://127.0.0.1:$(remembered_port "$name")/$method"
}
