// Signs a JSON body and posts it to a Letterbox webhook; tries again where that can help.
// Needs Node.js 18 or later.
//
//   export WEBHOOK_URL=… WEBHOOK_SECRET=…
//   node send.mjs body.json        # or, from standard input: node send.mjs < body.json

import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const TRIES = 6;

const url = new URL(process.env.WEBHOOK_URL);
const body = readFileSync(process.argv[2] ?? 0);
// The key is the text of the secret as it was shown, not what its digits stand for.
const signature = createHmac("sha256", process.env.WEBHOOK_SECRET).update(body).digest("hex");

async function post() {
  try {
    const response = await fetch(url, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Service-Signature": signature },
      body,
      redirect: "manual",
    });
    const asked = Number(response.headers.get("Retry-After")) || 0;
    return { status: response.status, answer: await response.text(), asked };
  } catch (error) {
    return { status: 0, answer: String(error.cause ?? error), asked: 0 };
  }
}

// A race, because fetch of Node.js 18 can lose its signal and then waits on.
function postInTime() {
  const timeout = { status: 0, answer: "timeout", asked: 0 };
  return Promise.race([post(), sleep(10_000, timeout, { ref: false })]);
}

let wait = Number(process.env.RETRY_FIRST_WAIT ?? 1);
for (let tries = 1; ; tries += 1) {
  const { status, answer, asked } = await postInTime();
  if (status === 202) {
    console.log(answer);
    process.exit(0);
  }
  const canHelp = status === 0 || status === 408 || status === 429 || status >= 500;
  if (!canHelp || tries === TRIES) {
    console.error(status || "no answer", answer);
    process.exit(1);
  }
  // A random part of a wait that doubles, or longer where the answer asks for it.
  await sleep(1000 * Math.max(Math.random() * Math.min(wait, 30), asked));
  wait *= 2;
}
