// An intake of webhooks by hand: signature over the raw bytes, a durable row under a unique key of
// the body, a persistent message to a quorum queue, and an answer only after RabbitMQ's confirm.
// ORDER says which of the two comes first; each order has a gap between them.
import crypto from 'node:crypto';
import amqp from 'amqplib';
import express from 'express';
import pg from 'pg';

const { AMQP_URL, DATABASE_URL, QUEUE, ORDER, PORT, SECRET } = process.env;

const pool = new pg.Pool({ connectionString: DATABASE_URL, connectionTimeoutMillis: 5000 });
// Without a listener a lost idle connection ends the process.
pool.on('error', (error) => console.error('database:', error.message));
await pool.query('CREATE TABLE IF NOT EXISTS deliveries (body_key bytea PRIMARY KEY, body text NOT NULL)');

let opening;
async function openChannel() {
    const connection = await amqp.connect(AMQP_URL);
    connection.on('error', (error) => console.error('broker:', error.message));
    connection.on('close', () => { opening = undefined; });
    const channel = await connection.createConfirmChannel();
    channel.on('error', (error) => console.error('channel:', error.message));
    await channel.assertQueue(QUEUE, { durable: true, arguments: { 'x-queue-type': 'quorum' } });
    return channel;
}
function channel() {
    opening ??= openChannel().catch((error) => { opening = undefined; throw error; });
    return opening;
}

// Resolves only when RabbitMQ has confirmed the message.
async function publish(body, key) {
    const to = await channel();
    await new Promise((resolve, reject) => {
        const properties = { persistent: true, messageId: key.toString('hex'), contentType: 'application/json' };
        to.sendToQueue(QUEUE, body, properties, (error) => (error ? reject(error) : resolve()));
    });
}

// Whether the row is new.
async function insert(body, key) {
    const inserted = await pool.query(
        'INSERT INTO deliveries VALUES ($1, $2) ON CONFLICT DO NOTHING', [key, body.toString()]);
    return inserted.rowCount === 1;
}

async function insertThenPublish(body, key) {
    if (!await insert(body, key)) return false;
    try {
        await publish(body, key);
    } catch (error) {
        // The sender will try again, which must not be taken for a repeat.
        await pool.query('DELETE FROM deliveries WHERE body_key = $1', [key]);
        throw error;
    }
    return true;
}

async function publishThenInsert(body, key) {
    const known = await pool.query('SELECT FROM deliveries WHERE body_key = $1', [key]);
    if (known.rowCount > 0) return false;
    await publish(body, key);
    await insert(body, key);
    return true;
}

const take = { 'insert-first': insertThenPublish, 'publish-first': publishThenInsert }[ORDER];

function isSigned(body, header) {
    const expected = Buffer.from(`sha256=${crypto.createHmac('sha256', SECRET).update(body).digest('hex')}`);
    const given = Buffer.from(header ?? '');
    return given.length === expected.length && crypto.timingSafeEqual(given, expected);
}

const app = express();
app.post('/webhook', express.raw({ type: () => true, limit: '1mb' }), async (request, response) => {
    if (!isSigned(request.body, request.get('x-hub-signature-256'))) return response.sendStatus(401);
    const key = crypto.createHash('sha256').update(request.body).digest();
    try {
        const isNew = await take(request.body, key);
        response.status(202).json({ duplicate: !isNew });
    } catch (error) {
        console.error('not taken:', error.message);
        response.sendStatus(503);
    }
});
app.get('/healthz', (_, response) => response.sendStatus(200));
await channel();
app.listen(Number(PORT), '127.0.0.1');
