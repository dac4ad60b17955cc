# adnanh/webhook of Debian, which runs a command that appends the body to a file, synced. It has no
# store, and so no database to kill. Sourced by deploy/compare.
# shellcheck shell=bash disable=SC2034,SC2154 # deploy/compare sets and uses the variables

# It answers at once by default, or with what the command has printed.
peer_runs=('default process' 'awaited process')
peer_scheme=github

peer_install() { need_packages webhook; }

# peer_prepare VARIANT
peer_prepare() {
    local awaited=false
    [ "$1" = default ] || awaited=true
    peer_name="webhook $(dpkg-query -W -f='${Version}' webhook)"
    peer_settings="a command that appends to a synced file, include-command-output-in-response $awaited"
    peer_url="http://127.0.0.1:$port/hooks/prove"
    peer_ready="http://127.0.0.1:$port/"
    peer_came_out=(--file "$run/came-out")
    : >"$run/came-out"
    sed "s|@COMMAND@|$ROOT/tests/peers/webhook/append|; s|@FILE@|$run/came-out|; s|@AWAITED@|$awaited|; s|@SECRET@|$secret|" \
        "$ROOT/tests/peers/webhook/hooks.json" >"$run/hooks.json"
    supervise peer webhook -ip 127.0.0.1 -port "$port" -hooks "$run/hooks.json" -verbose
    peer_killed=(peer)
}
