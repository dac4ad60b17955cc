// The proof of work of forms that want one.

// A challenge is good for a day; an hour less is safe.
const LONGEST = 23 * 3_600_000;
const since = Date.now();

export function isOld() {
  return Date.now() - since > LONGEST;
}

// When the service will take a submission, in milliseconds from now: sooner than a person it takes none.
export function tooSoonFor(challenge) {
  const least = Number(challenge.split(".")[2]) * 1_000;
  return Math.max(0, least + 1_000 - (Date.now() - since));
}

// Gives the nonce for a key. Works beside the page, which stays alive.
export function solve(challenge, key) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./proof-worker.js", import.meta.url), { type: "module" });
    const end = (settle, value) => {
      worker.terminate();
      settle(value);
    };
    worker.addEventListener("message", ({ data }) => end(resolve, data));
    worker.addEventListener("error", (error) => end(reject, error));
    worker.postMessage({ challenge, key });
  });
}
