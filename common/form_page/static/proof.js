// The proof of work, for forms with a spam defence.

// A challenge is valid for a day; an hour less is safe.
const LONGEST = 23 * 3_600_000;

export class Prover {
  // `askForOne` fetches another challenge; it may return nothing.
  constructor(challenge, askForOne) {
    this.askForOne = askForOne;
    this.#take(challenge);
    // Loaded now, while there is a connection, and idle until it is needed. If that fails, `prove` tries again.
    try {
      this.worker = this.#start();
    } catch {
      this.worker = null;
    }
  }

  #take(challenge) {
    this.challenge = challenge;
    this.takenAt = Date.now();
  }

  // Fetches another challenge; keeps the old one if there is none.
  async renew() {
    const challenge = await this.askForOne();
    if (challenge) this.#take(challenge);
  }

  // Returns the proof for a key, {challenge, nonce}, once the minimum time has passed, so that the service accepts it.
  async prove(key) {
    if (Date.now() - this.takenAt > LONGEST) await this.renew();
    const { challenge, takenAt } = this;
    const nonce = await this.#solve(challenge, key);
    const least = (Number(challenge.split(".")[2]) + 1) * 1_000;
    // A clock that was set back must not make the wait longer.
    const left = Math.min(least, least - (Date.now() - takenAt));
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, left)));
    return { challenge, nonce };
  }

  // A worker that could not be loaded is replaced at the next try.
  async #solve(challenge, key) {
    this.worker ??= this.#start();
    return new Promise((resolve, reject) => {
      this.worker.onmessage = ({ data }) => resolve(data);
      this.fail = reject;
      this.worker.postMessage({ challenge, key });
    });
  }

  // Works in the background, so that the page stays responsive.
  #start() {
    const worker = new Worker(new URL("./proof-worker.js", import.meta.url));
    worker.onerror = (error) => {
      worker.terminate();
      this.worker = null;
      this.fail?.(error);
    };
    return worker;
  }
}
