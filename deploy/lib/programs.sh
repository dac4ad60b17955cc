# Starts and stops the programs of deploy/up: copies in .local/programs, so that a build doesn't
# disturb running ones. If this is root, each runs as a user of its own. Sourced, not run.
# shellcheck shell=bash

# Removed from a program's environment, so that it has only the secrets that it is given.
SECRETS=(DATABASE_URL AMQP_URL LETTERBOX_SEALING_KEYS LETTERBOX_WEBHOOK_KEYS LETTERBOX_ACCOUNT_KEYS
    LETTERBOX_WEBHOOK_SECRET LETTERBOX_DASHBOARD_URL)

program_pid() { cat "$LOCAL/$1.pid" 2>/dev/null || true; }

copy_program() { # NAME PROGRAM
    local folder="$LOCAL/programs/$1" user="letterbox-$1"
    [ "$(id -u)" != 0 ] || id "$user" >/dev/null 2>&1 ||
        useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$user"
    private_folder "$LOCAL/programs"
    make_home "$folder" "$user"
    folder=$(readlink -f "$folder/home")
    rm -f "$folder/$2"
    install -m 755 "$BIN/$2" "$folder/$2"
    echo "$folder/$2"
}

# start_program NAME PROGRAM [ARGUMENT…] -- SETTING=VALUE…: starts a copy of the program, unless the
# latest build already runs with these settings. Settings never appear in an argument list.
start_program() {
    local name=$1 program=$2 command=() pid print
    shift 2
    while [ "$1" != -- ]; do command+=("$1"); shift; done
    shift
    pid=$(program_pid "$name")
    print=$(printf '%s\n' "${command[@]}" "$@" | cat - "$BIN/$program" | sha256sum)
    if runs "$pid" "/$program"; then
        [ "$print" != "$(cat "$LOCAL/$name.print" 2>/dev/null)" ] || return 0
        stop_pid "$pid"
    fi
    local copy
    copy=$(copy_program "$name" "$program")
    # shellcheck disable=SC2163 # "$@" is NAME=VALUE…
    (cd / && unset "${SECRETS[@]}" "${SECRETS[@]/%/_FILE}" && export "$@" && exec_as "letterbox-$name" setsid "$copy" "${command[@]}") \
        >>"$LOCAL/$name.log" 2>&1 </dev/null 9>&- &
    echo $! >"$LOCAL/$name.pid"
    echo "$print" >"$LOCAL/$name.print"
}

# stop_program NAME: terminates the program and waits for it.
stop_program() {
    local pid
    pid=$(program_pid "$1")
    rm -f "$LOCAL/$1.pid"
    runs "$pid" "/letterbox-$1" || runs "$pid" "/letterbox receive" || return 0
    say "stopping the $1"
    stop_pid "$pid"
}

await_ready() { # NAME PORT
    for ((i = 0; i < 300; i++)); do
        if curl -sf -o /dev/null "http://127.0.0.1:$2/readyz"; then return; fi
        kill -0 "$(program_pid "$1")" 2>/dev/null ||
            { tail -n 5 "$LOCAL/$1.log" >&2; fail "the $1 has exited: see .local/$1.log"; }
        sleep 0.1
    done
    curl -s "http://127.0.0.1:$2/readyz" >&2 || true
    fail "the $1 did not become ready in 30 s: see .local/$1.log"
}

preferred_port() { # NAME PORT: the stored port, otherwise PORT if it is free, otherwise any
    grep -q "^$1=" "$LOCAL/ports" 2>/dev/null || is_listening "$2" || echo "$1=$2" >>"$LOCAL/ports"
    remember "$LOCAL/ports" "$1"
}
