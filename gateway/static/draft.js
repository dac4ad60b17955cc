// What a person has written, kept on the device until the answer has come: in the storage of one tab, by the token of the
// link. A reload, a restored tab or a phone that slept goes on where it was.
//
// An idempotency key is made when an answer is sent, and stays with exactly what was sent: the same again has the same key,
// anything else has another one. So a copy of a tab can send what the first one sends, and it counts once.

const PREFIX = "letterbox:draft:";
// What was written to a link that died.
const LEFT = "letterbox:left";

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

export class Draft {
  // The draft of a link to this form: the one that was kept, or a new one.
  static of(token, form) {
    return new Draft(token, form, read(PREFIX + token) ?? {});
  }

  // What was written to a link that is dead; null where there is nothing.
  static ofDead(token) {
    const kept = read(PREFIX + token) ?? read(LEFT);
    return kept === null || kept.token !== token ? null : new Draft(token, kept.form, kept);
  }

  // `sending`, {key, payload}: of this it is not known whether the service has it. `earlier`: the same, of a dead link.
  constructor(token, form, { values = {}, sending = null, earlier = null }) {
    Object.assign(this, { token, form: { title: form.title, fields: form.fields }, values, sending, earlier });
  }

  // Notes what stands in the fields: values by their keys.
  note(values) {
    this.values = values;
    this.keep();
  }

  // Notes what is being sent, with its key; null where the service certainly has nothing of it.
  noteSending(sending) {
    this.sending = sending;
    this.keep();
  }

  // Notes that something else may be sent now, although this was perhaps taken: unchanged, it counts once.
  noteEarlier(sending) {
    this.earlier = sending;
    this.noteSending(null);
  }

  // The key for a payload.
  keyOf(payload) {
    const sent = [this.sending, this.earlier].find((one) => one?.payload === payload);
    return sent?.key ?? newKey();
  }

  keep() {
    write(PREFIX + this.token, { ...this });
  }

  // The answer has come: nothing is kept.
  end() {
    write(PREFIX + this.token, null);
    if (read(LEFT)?.form.title === this.form.title) write(LEFT, null);
  }

  // The link has died: what was written waits for a new link to the same form.
  leave() {
    write(LEFT, { ...this, sending: null, earlier: this.sending ?? this.earlier });
    write(PREFIX + this.token, null);
  }

  // Takes what was left by a dead link to a form of this title, as far as its fields are still there.
  takeLeft() {
    const left = read(LEFT);
    if (left === null || left.token === this.token || left.form.title !== this.form.title) return false;
    const same = (one, other) => one.key === other.key && one.type === other.type && one.label === other.label;
    const values = this.form.fields
      .filter((field) => left.form.fields.some((former) => same(former, field)) && Object.hasOwn(left.values, field.key))
      .map((field) => [field.key, left.values[field.key]]);
    if (values.length === 0) return false;
    this.earlier = left.earlier;
    this.note(Object.assign(Object.create(null), Object.fromEntries(values)));
    return true;
  }
}
