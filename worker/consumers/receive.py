"""Takes the signals of a subscription: WEBHOOK_SECRET=whsec_… PORT=8000 python3 receive.py"""

import base64, hmac, json, os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
SEEN = set()  # Yours is where your data are, and outlasts the program.


class Receiver(BaseHTTPRequestHandler):
    timeout = 30  # Seconds; whoever is silent for longer has hung up.

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        signal, at = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        digest = hmac.digest(KEY, f"{signal}.{at}.".encode() + body, "sha256")
        signed = "v1," + base64.b64encode(digest).decode()
        given = self.headers["webhook-signature"] or ""
        is_signed = hmac.compare_digest(signed.encode(), given.encode())
        if is_good := is_signed and abs(time.time() - int(at)) < 300:
            if signal not in SEEN:  # Your part. If it raises, the signal comes again.
                kind = self.headers["letterbox-kind"]
                print(json.dumps({"id": signal, "kind": kind, "body": body.decode()}), flush=True)
            SEEN.add(signal)
        self.send_response(204 if is_good else 401)
        self.end_headers()


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Receiver).serve_forever()
