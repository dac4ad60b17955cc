# qhook on PostgreSQL, which posts what it has taken to the prober. Sourced by deploy/compare.
# shellcheck shell=bash disable=SC2034,SC2154 # deploy/compare sets and uses the variables

QHOOK=0.6.1
# Its default takes up what a dead process was delivering only when a process starts 300 s later, or
# at the next full hour of one. 'short' lets it do so after 30 s, its own limit of a delivery.
peer_runs=('default process' 'short process' 'default database' 'short database')
peer_scheme=github

peer_install() {
    [ -x "$LOCAL/peers/qhook/$QHOOK/bin/qhook" ] && return
    as_caller cargo install --quiet --locked qhook --version "$QHOOK" \
        --root "$LOCAL/peers/qhook/$QHOOK" --target-dir "$LOCAL/peers/qhook/target"
    rm -rf "$LOCAL/peers/qhook/target"
}

# peer_prepare VARIANT
peer_prepare() {
    local stale=300
    [ "$1" != short ] || stale=30
    peer_name="qhook $QHOOK"
    peer_settings="PostgreSQL with synchronous_commit on, idempotency_key \$.eventId, stale_threshold_secs $stale"
    # What was under delivery at the last kills is taken up by a process that starts later: so one
    # does, as a deployment would.
    if [ "$1" = short ]; then
        late_restart=35
        peer_wait=120
        peer_settings+=", started once more 35 s after the load"
    fi
    peer_url="http://127.0.0.1:$port/webhooks/prove"
    peer_came_out=(--listen "127.0.0.1:$listen_port")
    export QHOOK_DATABASE=$database_url QHOOK_SECRET=$secret QHOOK_PORT=$port QHOOK_STALE=$stale
    export QHOOK_HANDLER="http://127.0.0.1:$listen_port/"
    supervise peer "$LOCAL/peers/qhook/$QHOOK/bin/qhook" start -c "$ROOT/tests/peers/qhook/qhook.yaml"
    peer_killed=(peer)
    peer_ready="http://127.0.0.1:$port/health"
}

# What its own tables say of the events, for the log.
peer_after() { database_sql "$database" <<<"SELECT status, count(*) FROM jobs GROUP BY status"; }
