// Signs standard input as a provider does, with its own library: sign.mjs PROVIDER SECRET
// Prints the headers as JSON.

const [provider, secret] = process.argv.slice(2);
const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const body = Buffer.concat(chunks).toString();

const providers = {
  async github() {
    const { sign } = await import("@octokit/webhooks-methods");
    return { "x-hub-signature-256": await sign(secret, body), "x-github-event": "push",
      "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958" };
  },
  async stripe() {
    const { default: Stripe } = await import("stripe");
    const webhooks = new Stripe("sk_test_none").webhooks;
    return { "stripe-signature": webhooks.generateTestHeaderString({ payload: body, secret }) };
  },
  async svix() {
    const { Webhook } = await import("svix");
    return signed(new Webhook(secret), "svix");
  },
  async "standard-webhooks"() {
    const { Webhook } = await import("standardwebhooks");
    return signed(new Webhook(secret), "webhook");
  },
};

function signed(webhook, prefix) {
  const [id, now] = ["msg_p5jXN8AQM9LWM0D4loKWxJek", new Date()];
  return { [`${prefix}-id`]: id, [`${prefix}-timestamp`]: `${Math.floor(now / 1000)}`,
    [`${prefix}-signature`]: webhook.sign(id, now, body) };
}

console.log(JSON.stringify(await providers[provider]()));
