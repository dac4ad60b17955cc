# What the peers share. Sourced by deploy/compare.
# shellcheck shell=bash disable=SC2154 # deploy/compare sets the variables

# supervise NAME COMMAND…: starts the command again at once when it dies. Its process id is in
# NAME.pid, what it prints in NAME.log of the folder of logs.
supervise() {
    local name=$1
    shift
    (
        # The prober's results, and a trap of the caller, are not the supervisor's.
        trap - EXIT
        set +e
        while [ ! -e "$run/stop" ]; do
            "$@" >>"$log/$name.log" 2>&1 </dev/null &
            echo $! >"$run/$name.new"
            mv "$run/$name.new" "$run/$name.pid"
            wait $!
            sleep 0.05
        done
    ) >/dev/null 2>&1 &
    echo $! >"$run/$name.supervisor"
}

# Ends everything that was supervised.
stop_supervised() {
    local file
    [ -d "${run:=$servers/run}" ] || return 0
    touch "$run/stop"
    for file in "$run"/*.supervisor; do
        [ -e "$file" ] || continue
        stop_pid "$(cat "${file%.supervisor}.pid")" 10
        stop_pid "$(cat "$file")" 5
    done
}

# await_url URL: until it answers well.
await_url() {
    local i
    for ((i = 0; i < 1800; i++)); do
        if curl -sf -m 2 -o /dev/null "$1"; then return; fi
        sleep 0.05
    done
    fail "nothing answers well at $1: see the logs in $log"
}

# install_node_packages PEER: the packages of its manifest, in .local/peers/PEER; by its lock file, if
# it has one.
install_node_packages() {
    local folder="$LOCAL/peers/$1" wanted
    command -v npm >/dev/null || fail "npm is missing"
    wanted=$({ node --version; cat "$ROOT/tests/peers/$1"/package*.json; } | sha256sum | cut -d ' ' -f 1)
    [ ! -e "$folder/$wanted" ] || return 0
    rm -rf "$folder"
    mkdir -p "$folder"
    cp "$ROOT/tests/peers/$1"/package*.json "$folder/"
    if [ -e "$folder/package-lock.json" ]; then
        (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --silent)
    else
        (cd "$folder" && npm install --ignore-scripts --no-audit --no-fund --silent)
    fi
    touch "$folder/$wanted"
}

# node_package_version FOLDER PACKAGE
node_package_version() { sed -n 's/^ *"version": "\(.*\)",\{0,1\}$/\1/p' "$1/node_modules/$2/package.json" | head -n1; }
