// The proof of work of forms that want one.

// A challenge is good for a day; an hour less is safe.
const LONGEST = 23 * 3_600_000;

export class Prover {
  // `askForOne` gives another challenge, or nothing.
  constructor(challenge, askForOne) {
    this.askForOne = askForOne;
    this.#take(challenge);
    // Now, while there is a connection: it works when it is asked. Where it can't be started, asking says so.
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

  // Asks for another challenge; the old one stays where there is none.
  async renew() {
    const challenge = await this.askForOne();
    if (challenge) this.#take(challenge);
  }

  // Gives the proof for a key, {challenge, nonce}, when the service takes it: not sooner than a person fills in the form.
  async prove(key) {
    if (Date.now() - this.takenAt > LONGEST) await this.renew();
    const { challenge, takenAt } = this;
    const nonce = await this.#solve(challenge, key);
    const least = (Number(challenge.split(".")[2]) + 1) * 1_000;
    // A clock that was set back makes nobody wait for longer.
    const left = Math.min(least, least - (Date.now() - takenAt));
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, left)));
    return { challenge, nonce };
  }

  // One that could not be loaded is replaced, for the next try.
  async #solve(challenge, key) {
    this.worker ??= this.#start();
    return new Promise((resolve, reject) => {
      this.worker.onmessage = ({ data }) => resolve(data);
      this.fail = reject;
      this.worker.postMessage({ challenge, key });
    });
  }

  // Works beside the page, which stays alive.
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
