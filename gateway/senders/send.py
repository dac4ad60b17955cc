#!/usr/bin/env python3
"""Signs a JSON body and posts it to a Letterbox webhook; tries again where that can help.

    export WEBHOOK_URL=… WEBHOOK_SECRET=…
    python3 send.py body.json        # or, from standard input: python3 send.py < body.json
"""

import hashlib
import hmac
import os
import random
import sys
import time
from http.client import HTTPException
from pathlib import Path
from urllib.request import HTTPErrorProcessor, Request, build_opener

TRIES = 6


class EveryAnswer(HTTPErrorProcessor):
    """Returns answers of every status: no exceptions, and no redirects."""

    def http_response(self, request, response):
        return response

    https_response = http_response


def post(opener, request):
    """Returns the status, the answer, and the seconds that it asks to wait."""
    try:
        with opener.open(request, timeout=10) as response:
            asked = response.headers.get("Retry-After", "")
            asked = int(asked) if asked.isdecimal() else 0
            return response.status, response.read().decode(errors="replace"), asked
    except (OSError, HTTPException) as error:
        return None, repr(error), 0


def main():
    body = Path(sys.argv[1]).read_bytes() if len(sys.argv) > 1 else sys.stdin.buffer.read()
    # The key is the text of the secret as it was shown, not what its digits stand for.
    key = os.environ["WEBHOOK_SECRET"].encode()
    headers = {
        "Content-Type": "application/json",
        "X-Service-Signature": hmac.new(key, body, hashlib.sha256).hexdigest(),
    }
    request = Request(os.environ["WEBHOOK_URL"], body, headers, method="POST")
    opener = build_opener(EveryAnswer)
    wait = float(os.environ.get("RETRY_FIRST_WAIT", "1"))

    for tries in range(1, TRIES + 1):
        status, answer, asked = post(opener, request)
        if status == 202:
            print(answer)
            return
        can_help = status in (None, 408, 429) or status >= 500
        if not can_help or tries == TRIES:
            sys.exit(f"{status or 'no answer'} {answer}")
        # A random part of a wait that doubles, or longer where the answer asks for it.
        time.sleep(max(random.uniform(0, min(wait, 30)), asked))
        wait *= 2


if __name__ == "__main__":
    main()
