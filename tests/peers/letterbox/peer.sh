# A gateway, a worker, and a subscription whose queue the prober reads. Sourced by deploy/compare.
# shellcheck shell=bash disable=SC2034,SC2154 # deploy/compare sets and uses the variables

peer_runs=('gateway process' 'worker process' 'gateway database')
peer_scheme=github

peer_install() { :; }

# peer_prepare VARIANT: which of its processes is killed.
peer_prepare() {
    local letterbox="$programs/letterbox" admin name webhook workspace="prove $run_id"
    peer_name="Letterbox"
    peer_settings="defaults, a gateway and a worker; subscription to a queue"
    peer_queue="letterbox-$run_id"
    export DATABASE_URL=$database_url AMQP_URL=$broker_url LETTERBOX_BASE_URL="http://127.0.0.1:$port"
    export LETTERBOX_LISTEN="127.0.0.1:$port"
    LETTERBOX_SEALING_KEYS="prove:$(cat "$servers/letterbox-key" 2>/dev/null || random_hex 32 | tee "$servers/letterbox-key")"
    export LETTERBOX_SEALING_KEYS
    "$letterbox" migrate >/dev/null
    "$letterbox" workspace create --name "$workspace" >/dev/null
    webhook=$("$letterbox" webhook create --workspace "$workspace" --name prove --scheme github \
        --secret-file "$run/secret" --json)
    "$letterbox" signal subscribe --workspace "$workspace" --queue "$peer_queue" >/dev/null
    peer_url=$(grep -o "http://127.0.0.1:$port/webhooks/[^\"]*" <<<"$webhook" | head -n1)
    peer_came_out=(--queue "$peer_queue")
    for name in gateway worker; do
        admin=$(free_port)
        supervise $name env LETTERBOX_ADMIN_LISTEN="127.0.0.1:$admin" "$programs/letterbox-$name"
        await_url "http://127.0.0.1:$admin/readyz"
        [ "$1" != $name ] || peer_ready="http://127.0.0.1:$admin/readyz"
    done
    peer_killed=("$1")
}
