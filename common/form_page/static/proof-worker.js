// Looks for a nonce such that SHA-256("challenge.key.nonce") begins with as many zero bits as the challenge requires. SHA-256 is
// implemented here (FIPS 180-4): the browser's own is missing without TLS, and slow for many short texts.

const PRIMES = [...primes(64)];
const K = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
const START = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
const W = new Int32Array(64);

function* primes(count) {
  for (let n = 2; count > 0; n++) {
    let isPrime = true;
    for (let d = 2; d * d <= n && isPrime; d++) isPrime = n % d !== 0;
    if (isPrime) {
      count--;
      yield n;
    }
  }
}

// The first 32 bits of the fraction.
function fraction(number) {
  return ((number - Math.floor(number)) * 2 ** 32) | 0;
}

// The first word of the hash: no challenge requires more than its 32 bits.
function firstWord(bytes, length) {
  const view = new DataView(bytes.buffer);
  const total = (Math.floor((length + 8) / 64) + 1) * 64;
  bytes.fill(0, length, total);
  bytes[length] = 0x80;
  view.setUint32(total - 4, length * 8);
  const h = START.slice();
  for (let at = 0; at < total; at += 64) compress(h, view, at);
  return h[0] >>> 0;
}

function compress(h, view, at) {
  for (let i = 0; i < 16; i++) W[i] = view.getInt32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const [x, y] = [W[i - 15], W[i - 2]];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    W[i] = (W[i - 16] + s0 + W[i - 7] + s1) | 0;
  }
  let a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], i = h[7];
  for (let n = 0; n < 64; n++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (i + s1 + ((e & f) ^ (~e & g)) + K[n] + W[n]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    i = g, g = f, f = e, e = (d + t1) | 0, d = c, c = b, b = a, a = (t1 + t2) | 0;
  }
  h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e, h[5] += f, h[6] += g, h[7] += i;
}

addEventListener("message", ({ data: { challenge, key } }) => {
  const bits = Number(challenge.split(".")[1]);
  const fixed = new TextEncoder().encode(`${challenge}.${key}.`);
  const bytes = new Uint8Array(fixed.length + 128);
  bytes.set(fixed);
  for (let nonce = 0; ; nonce++) {
    const digits = String(nonce);
    for (let i = 0; i < digits.length; i++) bytes[fixed.length + i] = digits.charCodeAt(i);
    if (Math.clz32(firstWord(bytes, fixed.length + digits.length)) >= bits) return postMessage(digits);
  }
});
