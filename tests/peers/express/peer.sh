# An Express handler by hand, in both natural orders. Sourced by deploy/compare.
# shellcheck shell=bash disable=SC2034,SC2154 # deploy/compare sets and uses the variables

peer_runs=('insert-first process' 'publish-first process' 'insert-first database' 'publish-first database')
peer_scheme=github

peer_install() { install_node_packages express; }

# peer_prepare VARIANT
peer_prepare() {
    local folder="$LOCAL/peers/express"
    peer_name="Express $(node_package_version "$folder" express), amqplib $(node_package_version "$folder" amqplib), pg $(node_package_version "$folder" pg)"
    peer_settings="row and message, ${1/-first/ first}; synchronous_commit on, quorum queue, persistent, publisher confirms"
    peer_queue="express-$run_id"
    peer_url="http://127.0.0.1:$port/webhook"
    peer_came_out=(--queue "$peer_queue")
    export DATABASE_URL=$database_url AMQP_URL=$broker_url QUEUE=$peer_queue ORDER=$1 PORT=$port SECRET=$secret
    cp "$ROOT/tests/peers/express/server.mjs" "$folder/"
    supervise peer node "$folder/server.mjs"
    peer_killed=(peer)
}
