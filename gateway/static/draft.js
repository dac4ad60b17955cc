// What a person has written, kept on the device until the answer has come: in the storage of one tab, by the token of the
// link. So a reload, a restored tab or a phone that slept goes on where it was, under the same idempotency key.

const PREFIX = "letterbox:";
// What was written to a link that died.
const LEFT = `${PREFIX}left`;
// How long a page that is being left may still hold its key, in milliseconds.
const LET_GO = 1_500;

// Storage can be switched off or full: then nothing is kept, and everything else works.
function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

function write(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // Kept on the page only.
  }
}

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// A tab that was duplicated has the storage of the first one, and must not use its key: the second answer would count as a
// repeat of the first. Whoever holds the lock has the key; a page that is being reloaded lets go of it in a moment.
async function isOurs(key) {
  if (!navigator.locks) return true;
  return new Promise((resolve) => {
    const held = () => {
      resolve(true);
      // For as long as the page lives.
      return new Promise(() => {});
    };
    navigator.locks.request(`${PREFIX}${key}`, { signal: AbortSignal.timeout(LET_GO) }, held).catch(() => resolve(false));
  });
}

export class Draft {
  // The draft of a link to this form: the one that was kept, or a new one.
  static async of(token, form) {
    const kept = read(PREFIX + token);
    const isKept = kept !== null && (await isOurs(kept.key));
    const draft = new Draft(token, form, isKept ? kept : { key: newKey(), values: kept?.values ?? {}, sending: null });
    if (!isKept) await isOurs(draft.key);
    return draft;
  }

  // The draft of a link that is dead; null where there is none.
  static ofDead(token) {
    const kept = read(PREFIX + token);
    return kept === null ? null : new Draft(token, kept.form, kept);
  }

  constructor(token, form, { key, values, sending }) {
    Object.assign(this, { token, form, key, values, sending });
  }

  // Notes what stands in the fields: values by their keys.
  note(values) {
    this.values = values;
    this.keep();
  }

  // Notes a body of which it is not known whether the service has it; null where it has nothing of it.
  noteSending(body) {
    this.sending = body;
    this.keep();
  }

  keep() {
    const { key, values, sending, form } = this;
    write(PREFIX + this.token, { key, values, sending, form: { title: form.title, fields: form.fields } });
  }

  // The answer has come: nothing is kept.
  end() {
    write(PREFIX + this.token, null);
  }

  // The link has died: what was written waits for a new link to the same form.
  leave() {
    write(LEFT, { title: this.form.title, fields: this.form.fields, values: this.values });
    this.end();
  }

  // Takes what was left by a dead link to a form of this title, as far as its fields are still there.
  takeLeft() {
    const left = read(LEFT);
    if (left === null || left.title !== this.form.title) return false;
    write(LEFT, null);
    const same = (one, other) => one.key === other.key && one.type === other.type && one.label === other.label;
    const values = this.form.fields
      .filter((field) => left.fields.some((former) => same(former, field)) && field.key in left.values)
      .map((field) => [field.key, left.values[field.key]]);
    if (values.length === 0) return false;
    this.note(Object.assign(Object.create(null), Object.fromEntries(values)));
    return true;
  }
}
