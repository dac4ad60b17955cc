// The draft of the answers, kept on the device until they are accepted: in the storage of one tab, by the token of the link. A
// reload, a restored tab or a phone that slept continues from there.
//
// An idempotency key is made when the answers are sent, and belongs to exactly that content: the same content has the same key,
// any other has another one. So a copy of a tab can send the same content as the first tab, and it counts once.

const PREFIX = "letterbox:draft:";
// The answers to a form whose link died.
const LEFT = "letterbox:left";

// Storage can be off or full: then nothing is kept, and everything else works.
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
  static of(token, { form, draft_key }) {
    return new Draft(token, form, { ...read(PREFIX + token), of: draft_key });
  }

  // The draft of a link that is dead; null if there is none.
  static ofDead(token) {
    const kept = read(PREFIX + token) ?? read(LEFT);
    return kept === null || kept.token !== token ? null : new Draft(token, kept.form, kept);
  }

  // `of` is the key of the workflow; `sending` is the {key, payload} that the service may have taken or not; `earlier` is the same
  // of a dead link.
  constructor(token, form, { of, values = {}, sending = null, earlier = null }) {
    const fields = form.fields.map(({ key, type, label }) => ({ key, type, label }));
    Object.assign(this, { token, of, form: { title: form.title, fields }, values, sending, earlier });
  }

  // Stores the values of the fields, by their keys.
  note(values) {
    this.values = values;
    this.keep();
  }

  // Stores the content that is being sent, with its key; null if the service has certainly not taken it.
  noteSending(sending) {
    this.sending = sending;
    this.keep();
  }

  // Allows other content to be sent now, although this was perhaps taken: sent unchanged, it counts once.
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

  // Deletes the draft of accepted answers.
  end() {
    write(PREFIX + this.token, null);
    if (read(LEFT)?.of === this.of) write(LEFT, null);
  }

  // Keeps the answers of a dead link for a new link to the form of the same workflow.
  leave() {
    write(LEFT, { ...this, sending: null, earlier: this.sending ?? this.earlier });
    write(PREFIX + this.token, null);
  }

  // Takes over the answers from a dead link of the same workflow, for the fields that still exist. Another form of the same words
  // may be another owner's.
  takeLeft() {
    const left = read(LEFT);
    if (left === null || left.token === this.token || this.of === undefined || left.of !== this.of) return false;
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
