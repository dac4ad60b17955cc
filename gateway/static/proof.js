// The proof of work of forms that want one.

// A challenge is good for a day; an hour less is safe.
const LONGEST = 23 * 3_600_000;

export class Prover {
  // `renew` gives a new challenge, or nothing.
  constructor(challenge, renew) {
    this.renew_ = renew;
    this.#take(challenge);
    // Now, while there is a connection; used when it is needed.
    fetch(SCRIPT, { cache: "force-cache" }).catch(() => {});
  }

  #take(challenge) {
    this.challenge = challenge;
    this.takenAt = Date.now();
  }

  // Asks for another challenge; the old one stays where there is none.
  async renew() {
    const challenge = await this.renew_();
    if (challenge) this.#take(challenge);
  }

  // Gives the proof for a key, {challenge, nonce}, when the service takes it: not sooner than a person fills in the form.
  async prove(key) {
    if (Date.now() - this.takenAt > LONGEST) await this.renew();
    const { challenge, takenAt } = this;
    const nonce = await solve(challenge, key);
    const least = (Number(challenge.split(".")[2]) + 1) * 1_000;
    // A clock that was set back makes nobody wait for longer.
    const left = Math.min(least, least - (Date.now() - takenAt));
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, left)));
    return { challenge, nonce };
  }
}

const SCRIPT = new URL("./proof-worker.js", import.meta.url);

// Works beside the page, which stays alive.
function solve(challenge, key) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(SCRIPT);
    const end = (settle, value) => {
      worker.terminate();
      settle(value);
    };
    worker.addEventListener("message", ({ data }) => end(resolve, data));
    worker.addEventListener("error", (error) => end(reject, error));
    worker.postMessage({ challenge, key });
  });
}
