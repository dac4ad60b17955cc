// Reads the signals of a subscription: AMQP_URL=amqp://… QUEUE=acme.crm node consume.mjs
//
// Needs amqplib. A signal can come twice, under one id: do what you do for it once for each id.

import { setTimeout } from "node:timers/promises";
import amqp from "amqplib";

const { AMQP_URL, QUEUE } = process.env;

/** Your part. If it throws, the signal comes again. */
async function handle(id, properties, body) {
  console.log(JSON.stringify({ id, kind: properties.type, body: body.toString() }));
}

async function consume() {
  const connection = await amqp.connect(AMQP_URL);
  const closed = new Promise((resolve) => connection.once("close", resolve));
  connection.on("error", (error) => console.error(error.message));
  const channel = await connection.createChannel();
  await channel.prefetch(100);
  await channel.consume(QUEUE, async (message) => {
    // The queue was deleted.
    if (message === null) return connection.close();
    try {
      await handle(message.properties.messageId, message.properties, message.content);
      // Only now: a message that is not acknowledged comes again.
      channel.ack(message);
    } catch (error) {
      console.error(error);
      connection.close();
    }
  });
  await closed;
}

for (;;) {
  await consume().catch((error) => console.error(error.message));
  console.error("connecting again");
  await setTimeout(2000);
}
