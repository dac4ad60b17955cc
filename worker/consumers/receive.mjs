// Takes the signals of a subscription: WEBHOOK_SECRET=whsec_… PORT=8000 node receive.mjs

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const key = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");
const seen = new Set(); // Yours is where your data are, and outlasts the program.

createServer(async (request, response) => {
  const chunks = await request.toArray().catch(() => null);
  if (!chunks) return; // The other side has hung up.
  const body = Buffer.concat(chunks);
  const { "webhook-id": id, "webhook-timestamp": at, "letterbox-kind": kind } = request.headers;
  const digest = createHmac("sha256", key).update(`${id}.${at}.`).update(body).digest("base64");
  const signed = Buffer.from(`v1,${digest}`);
  const given = Buffer.from(request.headers["webhook-signature"] ?? "");
  const isSigned = given.length === signed.length && timingSafeEqual(given, signed);
  const isGood = isSigned && Math.abs(Date.now() / 1000 - at) < 300;
  // Your part. Without an answer, the signal comes again.
  if (isGood && !seen.has(id)) console.log(JSON.stringify({ id, kind, body: `${body}` }));
  if (isGood) seen.add(id);
  response.writeHead(isGood ? 204 : 401).end();
}).listen(process.env.PORT, "127.0.0.1");
