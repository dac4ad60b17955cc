"""Signs standard input as a provider does, with its own library: sign.py PROVIDER SECRET

Prints the headers as JSON.
"""

import json
import sys
import time

from slack_sdk.signature import SignatureVerifier

provider, secret = sys.argv[1:]
body = sys.stdin.read()
assert provider == "slack"
now = str(int(time.time()))
signature = SignatureVerifier(secret).generate_signature(timestamp=now, body=body)
print(json.dumps({"x-slack-request-timestamp": now, "x-slack-signature": signature}))
