"""What schemathesis must know to get past the doors of a gateway, beside gateway/openapi.yaml.

Three of four generated requests are given what really exists, wherever they have something valid in its place: the
address of a webhook, the token of a form, a payload that fits it. Three of four events are signed, over the bytes that
are sent. What is not valid is never touched. Every choice follows from the request itself, so that it is the same when
the request is sent again, and on another gateway.

Environment variables, all of them required:

  LETTERBOX_TEST_WEBHOOK_TOKEN   the address of a webhook, <orgId>.<webhookId>
  LETTERBOX_TEST_WEBHOOK_SECRET  its secret
  LETTERBOX_TEST_FORM_TOKENS     tokens of live forms of one definition, separated by commas; each may be asked 20 times
                                 a minute, so 40 of them are good for a run
  LETTERBOX_TEST_FORM_PAYLOAD    a payload that fits this definition, as JSON

The gateway must believe the X-Forwarded-For of whoever runs this (LETTERBOX_TRUSTED_PROXIES), or nearly everything is
answered with 429.
"""

import hashlib
import hmac
import json
import os
import re

import requests
import schemathesis
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi import checks

WEBHOOK_TOKEN = os.environ["LETTERBOX_TEST_WEBHOOK_TOKEN"]
WEBHOOK_SECRET = os.environ["LETTERBOX_TEST_WEBHOOK_SECRET"].encode()
FORM_TOKENS = os.environ["LETTERBOX_TEST_FORM_TOKENS"].split(",")
FORM_PAYLOAD = json.loads(os.environ["LETTERBOX_TEST_FORM_PAYLOAD"])

UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
WEBHOOK_ADDRESS = re.compile(rf"{UUID}\.{UUID}")
SIGNATURE = "X-Service-Signature"
MAX_BODY = 65_536
# An origin that no gateway allows.
STRANGE_ORIGIN = "https://elsewhere.example"
SUBMIT = "POST /public/workflow-forms/forms/submit"

# What a run must have met, or it has tested less than it seems. The limit of a client is met somewhere.
EXPECTED = {
    "POST /webhooks/incoming/{token}": {202, 400, 401, 403, 404, 405},
    "GET /public/workflow-forms/forms": {200, 403, 404, 405},
    SUBMIT: {200, 400, 403, 404, 405},
    "GET /forms": {200, 403, 404, 405},
}


class Dice:
    """Throws that follow from what they are thrown for."""

    def __init__(self, *parts):
        self.digest = hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).digest()
        self.thrown = 0

    def throw(self, sides):
        self.thrown += 1
        digest = hashlib.sha256(self.digest + bytes([self.thrown])).digest()
        return int.from_bytes(digest[:8], "big") % sides

    def name(self):
        return self.digest.hex()[:32]


def without_names(sent):
    """What is sent, with what is called otherwise in every run called the same."""
    for place, name in enumerate([WEBHOOK_TOKEN, *FORM_TOKENS]):
        sent = sent.replace(name.encode(), f"name {place}".encode())
    return sent


class Sender(requests.auth.AuthBase):
    """Who sends a request: called when its bytes are known."""

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        dice = Dice(request.method, without_names(request.path_url.encode()), without_names(body))
        # A client of its own for each request, and one for many: it comes to its limit.
        client = f"198.18.{dice.throw(256)}.{dice.throw(256)}" if dice.throw(5) else "198.19.0.1"
        request.headers["X-Forwarded-For"] = client
        is_event = "/webhooks/incoming/" in request.url
        is_usual = request.method == ("POST" if is_event or request.url.endswith("/submit") else "GET")
        if is_usual and dice.throw(6) == 0:
            request.headers["Origin"] = STRANGE_ORIGIN
        if is_event and dice.throw(4):
            request.headers[SIGNATURE] = hmac.new(WEBHOOK_SECRET, body, hashlib.sha256).hexdigest()
        return request


# Where a missing signature is what is tried, this is left out.
schemathesis.auth.set_from_requests(Sender())


def is_text(value, least, most):
    return isinstance(value, str) and least <= len(value) <= most


def fitting(payload, dice):
    """A payload near one that fits: the one itself, or with one value of the generated one."""
    values = list(payload.values())
    if not all(isinstance(value, str | int | float) for value in values):
        return payload
    fits = dict(FORM_PAYLOAD)
    match dice.throw(4):
        case 0:
            return payload
        case 1 if values:
            fits[list(fits)[dice.throw(len(fits))]] = values[dice.throw(len(values))]
        case 2 if values:
            name = list(payload)[dice.throw(len(payload))]
            fits[name] = payload[name]
    return fits


@schemathesis.hook
def before_call(context, case, kwargs):
    dice = Dice(context.operation.label, case.method, case.path_parameters, case.query, case.body)
    if not dice.throw(4):
        return
    form_token = FORM_TOKENS[dice.throw(len(FORM_TOKENS))]

    if WEBHOOK_ADDRESS.fullmatch(str(case.path_parameters.get("token", ""))):
        case.path_parameters = {**case.path_parameters, "token": WEBHOOK_TOKEN}

    if is_text(case.query.get("token"), 20, 200):
        case.query = {**case.query, "token": form_token}

    body = case.body
    if context.operation.label == SUBMIT and isinstance(body, dict) and is_text(body.get("token"), 20, 200):
        body = {**body, "token": form_token}
        if isinstance(body.get("payload"), dict):
            body["payload"] = fitting(body["payload"], dice)
        # A key that is known is accepted whatever the payload says: no two payloads have the same one.
        key = body.get("idempotencyKey")
        if is_text(key, 1, 120):
            name = Dice(key, body.get("payload")).name()
            body["idempotencyKey"] = (key[: -len(name)] if len(key) > len(name) else key) + name
        case.body = body


def is_proof(value):
    """Whether it is a proof as it is described."""
    if not isinstance(value, dict) or not isinstance(value.get("challenge"), str) or value.get("trap", "") != "":
        return False
    nonce = value.get("nonce")
    return isinstance(nonce, str) and re.fullmatch("[0-9]{1,20}", nonce) is not None


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether a failure is one. Two refusals follow from what no schema can say: a body can have too many bytes, and a
    payload that is valid for some form need not fit this one. And forms that need no proof accept any.
    """
    if response.status_code == 200 and isinstance(failure, AcceptedNegativeData) and isinstance(case.body, dict):
        return is_proof(case.body.get("proof", {"challenge": "", "nonce": "0"}))
    is_refused = isinstance(failure, checks.RejectedPositiveData)
    if response.status_code == 413 and (is_refused or isinstance(failure, AcceptedNegativeData)):
        return len(response.request.body) <= MAX_BODY
    if response.status_code == 400 and is_refused and context.operation.label == SUBMIT:
        return not response.json()["error"]["message"].startswith("Field ")
    return True


@schemathesis.check
class every_door_was_passed:
    """Every answer that a run should meet was met. A set, because a request can be sent again."""

    def __init__(self):
        self.met = {label: set() for label in EXPECTED}

    def after_response(self, context, response, case):
        self.met.setdefault(case.operation.label, set()).add(response.status_code)

    def after_run(self, context):
        missing = {label: sorted(codes - self.met[label]) for label, codes in EXPECTED.items()}
        missing = [f"{label}: {codes}" for label, codes in missing.items() if codes]
        if not any(429 in codes for codes in self.met.values()):
            missing.append("anywhere: [429]")
        assert not missing, "never answered: " + "; ".join(missing)
