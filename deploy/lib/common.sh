# Shared by the deploy scripts: paths, users, packages, free ports, processes by pid.
# Sourced, not run.
# shellcheck shell=bash

set -euo pipefail
# Files written by the scripts are private; builds and installations use the caller's umask.
CALLER_UMASK=$(umask)
umask 077
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
LOCAL="$ROOT/.local"
RUST_MINIMUM=1.92
# Where cargo puts programs; the setting may be relative to the project.
BIN=$(cd "$ROOT" && realpath -m "${CARGO_TARGET_DIR:-target}")/release

# The crates of the programs that run in production.
# shellcheck disable=SC2034 # used by scripts that source this
PROGRAM_CRATES=(-p letterbox-gateway -p letterbox-worker -p letterbox-operator -p letterbox-desk)

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
fail() { printf '\033[1;31merror:\033[0m %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else return 127; fi
}

# as_caller COMMAND…: runs it with the caller's umask.
as_caller() { (umask "$CALLER_UMASK" && "$@"); }

# as_user USER COMMAND…: runs it as that user if this is root, otherwise as the current user.
as_user() { (exec_as "$@"); }
# The same, in place of this shell; in the network namespace LETTERBOX_NETNS, if that is set.
exec_as() {
    local prefix=()
    [ -z "${LETTERBOX_NETNS:-}" ] || prefix=(ip netns exec "$LETTERBOX_NETNS")
    [ "$(id -u)" != 0 ] || prefix+=(setpriv --reuid="$1" --regid="$(id -g "$1")" --clear-groups)
    exec "${prefix[@]}" "${@:2}"
}

# Makes a folder that only its owner can list. If that is root, the servers' users may traverse it.
private_folder() { mkdir -p "$1"; if [ "$(id -u)" = 0 ]; then chmod 711 "$1"; else chmod 700 "$1"; fi; }

# make_home DIR USER: makes DIR/home, which belongs to USER; as a link to a folder in /var/tmp if
# USER can't reach DIR (below /root).
make_home() {
    private_folder "$1"
    [ ! -e "$1/home" ] || return 0
    if (cd / && as_user "$2" test -x "$1"); then mkdir -m 700 "$1/home"
    else ln -s "$(mktemp -d /var/tmp/letterbox-XXXXXX)" "$1/home"; fi
    [ "$(id -u)" != 0 ] || chown "$2:" "$1/home/"
}

# Removes a folder and its home, which may be a link.
remove_folder() { rm -rf "$(readlink -f "$1/home" || echo "$1")" "$1"; }

# Installs missing Debian packages; on other systems says which programs are needed.
need_packages() {
    local missing=() package
    if ! command -v dpkg-query >/dev/null; then
        command -v openssl >/dev/null && command -v curl >/dev/null && return
        fail "can't install packages, because this is not Debian: install curl, openssl, a C compiler," \
            "PostgreSQL 15 or later and RabbitMQ 3.10 or later (or set DATABASE_URL and AMQP_URL)"
    fi
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return
    say "installing ${missing[*]}"
    # Keeps the packages from starting their own servers: ours are private.
    local policy=/usr/sbin/policy-rc.d made=
    if [ ! -e $policy ] && printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null; then
        as_root chmod 755 $policy
        made=yes
    fi
    local log="$LOCAL/install.log" result=0
    private_folder "$LOCAL"
    { as_caller as_root apt-get update -q && as_caller as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qy --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || result=$?
    [ -z "$made" ] || as_root rm -f $policy
    [ $result = 0 ] && return
    tail -n 5 "$log" >&2
    fail "could not install ${missing[*]} (as root: apt-get install ${missing[*]}); see $log"
}

need_rust() {
    command -v cargo >/dev/null || fail "Rust is missing: install it from https://rustup.rs, then run this again"
    local version
    version=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' $RUST_MINIMUM "$version" | sort -V | head -n1)" = $RUST_MINIMUM ] ||
        fail "Rust $version is too old: $RUST_MINIMUM or later is needed ('rustup update stable')"
}

# Links target/ to the build folder, so that programs are always found there.
link_target() { [ -e "$ROOT/target" ] || ln -sfn "$(dirname "$BIN")" "$ROOT/target"; }

is_listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Prints a port on which nothing listens, below 32768: above, the system may give it to an outgoing
# connection at any time.
free_port() {
    local port
    while :; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        is_listening $port || { echo $port; return; }
    done
}

# remember FILE NAME: prints the port stored under NAME in FILE; stores a free one if there is none.
remember() {
    local port
    port=$(sed -n "s/^$2=//p" "$1" 2>/dev/null || true)
    if [ -z "$port" ]; then port=$(free_port); echo "$2=$port" >>"$1"; fi
    echo "$port"
}

# runs PID WORD: whether the process exists and its command line contains the word.
runs() { [ -n "${1:-}" ] && { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null | grep -q -- "$2"; }

# stop_pid PID [SECONDS]: terminates a process, and kills it if it hasn't exited in time.
stop_pid() {
    local pid=$1 seconds=${2:-30} i
    kill -TERM "$pid" 2>/dev/null || return 0
    for ((i = 0; i < seconds * 10; i++)); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
}

random_hex() { head -c "$1" /dev/urandom | od -An -tx1 | tr -d ' \n'; }
