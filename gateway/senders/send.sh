#!/usr/bin/env bash
# Signs a JSON body and posts it to a Letterbox webhook; tries again where that can help.
# Needs bash, curl and openssl.
#
#   export WEBHOOK_URL=… WEBHOOK_SECRET=…
#   bash send.sh body.json        # or, from standard input: bash send.sh < body.json
set -euo pipefail
export LC_ALL=C

: "${WEBHOOK_URL:?}" "${WEBHOOK_SECRET:?}"
if [[ ! $WEBHOOK_SECRET =~ ^[0-9a-f]{64}$ ]]; then
    echo "WEBHOOK_SECRET must be the 64 characters that were shown, and nothing else" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat -- "${1:--}" >"$work/body" # a copy: every try sends what was signed

# The bytes of the secret, each XOR $1. They are as many as a block of SHA-256 has.
secret_xor() {
    local i code
    for ((i = 0; i < 64; i++)); do
        printf -v code %d "'${WEBHOOK_SECRET:i:1}"
        printf -v code %02x $((code ^ $1))
        printf %b "\\x$code"
    done
}

# HMAC-SHA256, spelled out: openssl takes the key only as an argument, and every user of the machine
# can read the arguments of programs.
signature=$({
    secret_xor 0x5c
    { secret_xor 0x36 && cat "$work/body"; } | openssl dgst -sha256 -binary
} | openssl dgst -sha256 -r)
signature=${signature%% *}

for try in {1..6}; do
    : >"$work/head"
    : >"$work/answer"
    status=$(curl --silent --show-error --max-time 10 --write-out '%{http_code}' \
        --dump-header "$work/head" --output "$work/answer" \
        --header 'Content-Type: application/json' --header "X-Service-Signature: $signature" \
        --data-binary "@$work/body" --url "$WEBHOOK_URL") || status="no answer"
    case $status in
        202) cat "$work/answer" && echo && exit ;;
        "no answer" | 408 | 429 | 5??) ((try < 6)) || break ;;
        *) break ;;
    esac
    # A random part of a wait that doubles, or longer where the answer asks for it.
    sleep "$(awk -v try="$try" -v first="${RETRY_FIRST_WAIT:-1}" -v random="$RANDOM" '
        tolower($1) == "retry-after:" { asked = $2 + 0 }
        END {
            wait = first * 2 ^ (try - 1)
            wait = (wait < 30 ? wait : 30) * random / 32768
            printf "%.3f", (wait > asked ? wait : asked)
        }' "$work/head")"
done
echo "$status $(cat "$work/answer")" >&2
exit 1
