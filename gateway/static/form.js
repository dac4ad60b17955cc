// The page of a public form: reads the definition, lets it be filled in, submits it. Plain modules, no dependency.
//
// One idempotency key belongs to what is sent, however often the page is loaded, so that however often it is sent, it counts
// once. When it is not known whether the service has taken it (no answer, or 503), it may have been recorded under that key:
// from then on the fields are locked, and only the same content is sent again.

import { Draft } from "./draft.js";
import { readNumber } from "./number.js";

const BASE = document.body.dataset.baseUrl + "/public/workflow-forms/forms";
const TOKEN = new URLSearchParams(location.search).get("token") ?? history.state?.token ?? "";
// Out of the address bar, where others may see it; a reload finds it all the same.
history.replaceState({ token: TOKEN }, "", location.pathname);
const TIMEOUT = 30_000;
// Tries that the page makes by itself before it asks.
const TRIES = 6;
const DEFAULT_CONFIRMATION = "Your answers have been received.";
// By type of field, in characters: the service's own limits.
const MAX_LENGTHS = JSON.parse(document.body.dataset.maxLengths);
const EMAIL = /^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$/;

const $ = (id) => document.getElementById(id);
let definition;
let draft;
let inputs = [];
let busy = false;
// Whether something was written that is not sent.
let unsent = false;
// What was meant by a number that could be two, by field: {text, json}.
const meant = new Map();

function show(id) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== id;
  $(id).querySelector("h1[tabindex]")?.focus();
}

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Talks to the service. Gives {status, body}, with `retry` in seconds where it is worth while; status 0 is no answer.
async function call(url, request) {
  try {
    const options = { ...request, credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) };
    const answer = await fetch(url, options);
    const retry = Number(answer.headers.get("Retry-After")) || 5;
    // Something in between may answer, too, and not in JSON.
    return { status: answer.status, body: await answer.json().catch(() => null), retry };
  } catch {
    return { status: 0, retry: 5 };
  }
}

// Waits, and counts down in an element that is not read out.
async function wait(seconds, countdown) {
  for (let left = Math.ceil(seconds); left > 0; left--) {
    countdown.textContent = `Next try in ${left} s`;
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
  countdown.textContent = "";
}

// Reading

async function load() {
  for (let tries = 1; ; tries++) {
    const answer = await call(`${BASE}?token=${encodeURIComponent(TOKEN)}`);
    if (answer.status === 200 && Array.isArray(answer.body?.fields)) return begin(answer.body);
    if (isDead(answer)) return unavailable();
    const again = [0, 200, 429, 502, 503, 504].includes(answer.status) && tries < TRIES;
    document.title = "Form";
    $("trouble-text").textContent = !again
      ? "Please try again later."
      : answer.status === 429
        ? "Many people are using this form. The page will try again by itself."
        : "The service is not responding. The page will try again by itself.";
    $("reload").hidden = again;
    show("trouble");
    if (!again) return;
    await wait(answer.retry, $("trouble-countdown"));
  }
}

function isDead(answer) {
  return answer.status === 404 && answer.body?.error?.code === "workflow_public_form_unavailable";
}

function unavailable() {
  document.title = "This form is not available";
  const dead = draft ?? Draft.ofDead(TOKEN);
  const written = (dead?.form.fields ?? []).map((field) => [field.label, dead.values[field.key]]);
  const parts = written.filter(([, value]) => typeof value === "string" && value.trim() !== "");
  $("written").hidden = parts.length === 0;
  $("written-list").replaceChildren(
    ...parts.flatMap(([label, value]) => [make("dt", { dir: "auto" }, label), make("dd", { dir: "auto" }, value)]),
  );
  if (dead !== null && (parts.length > 0 || dead.sending !== null)) dead.leave();
  unsent = false;
  show("unavailable");
}

async function begin(form) {
  draft = Draft.of(TOKEN, form);
  render(form);
  const isLeft = Object.keys(draft.values).length === 0 && draft.takeLeft();
  $("filled-in").hidden = !isLeft;
  $("earlier").hidden = draft.earlier === null;
  restore();
  if (draft.sending !== null) await send(draft.sending, true);
}

function render(form) {
  definition = form;
  document.title = form.title;
  $("title").textContent = form.title;
  $("description").textContent = form.description ?? "";
  $("description").hidden = !form.description;
  inputs = form.fields.map(renderField);
  show("fill-in");
}

function renderField(field, index) {
  const id = `field-${index}`;
  const input = make(field.type === "textarea" ? "textarea" : "input", { id, dir: "auto" });
  // Not type=number, which changes what was typed without a word.
  if (field.type !== "textarea") input.type = field.type === "number" ? "text" : field.type;
  if (field.type === "number") Object.assign(input, { inputMode: "decimal", autocomplete: "off" });
  if (field.type === "email") input.autocomplete = "email";
  if (field.placeholder && field.type !== "checkbox") input.placeholder = field.placeholder;
  input.setAttribute("aria-required", field.required);
  if (field.type !== "textarea") input.enterKeyHint = index === definition.fields.length - 1 ? "send" : "next";
  const label = make("label", { htmlFor: id, dir: "auto" }, field.label);
  if (!field.required) label.append(" ", make("span", { className: "optional" }, "(optional)"));
  const error = make("p", { id: `${id}-error`, className: "error", hidden: true });
  const note = make("p", { id: `${id}-note`, className: "note", hidden: true });
  note.setAttribute("role", "status");
  const ticked = field.type === "checkbox";
  const parts = ticked ? [input, label, error, note] : [label, input, error, note];
  $("fields").append(make("div", { className: ticked ? "field tick" : "field" }, ...parts));
  input.addEventListener("input", () => {
    setError(input, null);
    if (field.type === "number") tell(input);
    else count(field, input);
    unsent = true;
    draft.note(values());
  });
  return input;
}

// What stands in the fields, by their keys.
function values() {
  const entries = definition.fields.map((field, index) => {
    const input = inputs[index];
    return [field.key, field.type === "checkbox" ? input.checked : input.value];
  });
  // A key may be __proto__.
  return Object.assign(Object.create(null), Object.fromEntries(entries));
}

function restore() {
  definition.fields.forEach((field, index) => {
    const value = draft.values[field.key];
    const input = inputs[index];
    if (field.type === "checkbox") input.checked = value === true;
    else if (typeof value === "string") input.value = value;
    count(field, input);
    unsent ||= field.type === "checkbox" ? input.checked : input.value !== "";
  });
}

// Says how many characters are left, near the end.
function count(field, input) {
  const max = MAX_LENGTHS[field.type];
  const left = max - [...input.value].length;
  const note = $(`${input.id}-note`);
  note.hidden = max === undefined || left < 0 || left > Math.max(20, max * 0.1);
  note.textContent = note.hidden ? "" : `${left} characters left`;
}

// Checking, by the service's rules

function problem(field, input) {
  if (field.type === "checkbox") return field.required && !input.checked ? "Please tick this box." : null;
  const value = input.value;
  if (value.trim() === "") {
    // Spaces alone are an answer only where text is free to be blank.
    return field.required ? "Please fill in this field." : null;
  }
  const max = MAX_LENGTHS[field.type];
  const length = [...value].length;
  if (length > max) return `Please use at most ${max} characters. You have used ${length}.`;
  if (field.type === "email" && !EMAIL.test(value)) return "Please enter an e-mail address, like name@example.com.";
  if (value.isWellFormed?.() === false) return "Please remove the characters that can’t be shown.";
  return field.type === "number" ? numberProblem(input) : null;
}

function numberProblem(input) {
  const { json, tooLarge, choices } = numberOf(input);
  if (json !== undefined) return null;
  if (tooLarge) return "Please enter a smaller number.";
  return choices ? "Which number do you mean?" : "Please enter a number.";
}

function numberOf(input) {
  const chosen = meant.get(input);
  return chosen?.text === input.value ? chosen : readNumber(input.value);
}

// Says what was read, where it is not what was typed: while it is typed, so that nothing moves when it is left.
function tell(input, text = numberOf(input).json) {
  const note = $(`${input.id}-note`);
  note.hidden = text === undefined || text === input.value.trim();
  note.textContent = note.hidden ? "" : `= ${text}`;
}

// Asks which of two numbers is meant.
function offer(input, [whole, decimal]) {
  const lower = Math.trunc(Number(decimal));
  const between = `${decimal} (${lower} … ${lower + Math.sign(lower || 1)})`;
  const button = (json, text) => {
    const button = make("button", { type: "button", className: "choice" }, text);
    button.addEventListener("click", () => {
      meant.set(input, { text: input.value, json });
      setError(input, null);
      tell(input, text);
      input.focus();
    });
    return button;
  };
  const choices = make("div", { className: "choices" }, button(whole, whole), button(decimal, between));
  choices.setAttribute("role", "group");
  choices.setAttribute("aria-labelledby", `${input.id}-error`);
  $(`${input.id}-error`).after(choices);
}

function setError(input, message) {
  input.parentElement.querySelector(".choices")?.remove();
  const error = $(`${input.id}-error`);
  error.textContent = message ?? "";
  error.hidden = !message;
  if (message) {
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", error.id);
  } else {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
}

// Lists what is wrong, each linked to its field where it has one, and takes the focus there.
function summarize(problems) {
  const items = problems.map(({ input, message, label }) => {
    if (!input) return make("li", {}, message);
    const link = make("a", { href: `#${input.id}` }, `${label}: ${message}`);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      input.focus();
    });
    return make("li", {}, link);
  });
  $("summary").querySelector("ul").replaceChildren(...items);
  document.title = items.length > 0 ? `Error: ${definition.title}` : definition.title;
  $("summary").hidden = items.length === 0;
  if (items.length > 0) $("summary").focus();
}

function payload() {
  const values = definition.fields.map((field, index) => {
    const input = inputs[index];
    if (field.type === "checkbox") return [field.key, input.checked];
    if (input.value.trim() === "") return null;
    return [field.key, input.value];
  });
  const json = (index, value) => (definition.fields[index].type === "number" ? numberOf(inputs[index]).json : JSON.stringify(value));
  // Text, so that numbers keep their digits and a key may be __proto__.
  const members = values.flatMap((entry, index) => (entry ? [`${JSON.stringify(entry[0])}:${json(index, entry[1])}`] : []));
  return `{${members.join(",")}}`;
}

// Submitting

async function submit(event) {
  event.preventDefault();
  if (busy) return;
  const problems = [];
  definition.fields.forEach((field, index) => {
    const message = problem(field, inputs[index]);
    setError(inputs[index], message);
    if (message && field.type === "number") {
      const { choices } = numberOf(inputs[index]);
      if (choices) offer(inputs[index], choices);
    }
    if (message) problems.push({ input: inputs[index], message, label: field.label });
  });
  summarize(problems);
  if (problems.length === 0) {
    const content = payload();
    await send({ key: draft.keyOf(content), payload: content });
  }
}

// What the service has refused, by the label of the field that it names by its key.
function refusal(message) {
  const [, key, problem] = /^Field ("(?:[^"\\]|\\.)*"): (.+)$/s.exec(message) ?? [];
  const index = definition.fields.findIndex((field) => JSON.stringify(field.key) === key);
  if (index < 0) return { message };
  setError(inputs[index], problem);
  return { input: inputs[index], label: definition.fields[index].label, message: problem };
}

function setBusy(text, locked) {
  busy = text !== null;
  $("submit").setAttribute("aria-disabled", busy);
  $("submit").hidden = locked;
  $("fields").disabled = busy || locked;
  $("progress").hidden = !busy && !locked;
  $("progress-text").textContent = text ?? "";
  for (const button of [$("retry"), $("anew")]) button.hidden = true;
  // What had the focus may be gone or disabled.
  if (locked) $("progress").focus();
  $("progress").scrollIntoView({ block: "nearest" });
}

// Sends a payload under its key until there is an answer. `uncertain`: the service may have it already.
async function send(sending, uncertain = false) {
  const body = `{"token":${JSON.stringify(TOKEN)},"idempotencyKey":"${sending.key}","payload":${sending.payload}}`;
  const request = { method: "POST", headers: { "Content-Type": "application/json" }, body };
  // Should the page be left now, the service may have it.
  draft.noteSending(sending);
  for (let tries = 1; ; tries++) {
    setBusy("Sending…", uncertain);
    const answer = await call(`${BASE}/submit`, request);
    if (answer.status === 200 && answer.body?.status === "accepted") {
      draft.end();
      unsent = false;
      document.title = `Thank you – ${definition.title}`;
      $("confirmation").textContent = definition.confirmationMessage ?? DEFAULT_CONFIRMATION;
      return show("done");
    }
    if (isDead(answer)) return unavailable();
    // The service looks at the key first: what it finds invalid was not taken by an earlier try either. Nobody else knows.
    const isInvalid = answer.status === 400 && answer.body?.error?.code === "invalid_input";
    const isRefused = answer.status >= 400 && answer.status < 500 && ![404, 408, 429].includes(answer.status);
    if (isInvalid || (isRefused && !uncertain)) {
      draft.noteSending(null);
      setBusy(null, false);
      return summarize([refusal(answer.body?.error?.message ?? "These answers were not accepted.")]);
    }
    // Sent too often: nothing has been taken. Everything else leaves it open.
    uncertain ||= answer.status !== 429;
    if (tries % TRIES === 0) {
      setBusy("Your answers could not be sent yet. They are kept on this page.", true);
      for (const button of [$("retry"), $("anew")]) button.hidden = false;
      $("retry").focus();
      const isAgain = await new Promise((resolve) => {
        $("retry").addEventListener("click", () => resolve(true), { once: true });
        $("anew").addEventListener("click", () => resolve(false), { once: true });
      });
      if (isAgain) continue;
      draft.noteSending(null);
      return setBusy(null, false);
    }
    setBusy(
      answer.status === 429
        ? "Many people are sending answers. Yours will be sent in a moment; please keep this page open."
        : "The service is not responding. Your answers will be sent again; please keep this page open.",
      uncertain,
    );
    await wait(answer.retry, $("progress-countdown"));
  }
}

$("form").addEventListener("submit", submit);
addEventListener("beforeunload", (event) => {
  if (unsent) event.preventDefault();
});
$("reload").addEventListener("click", () => location.reload());
show("loading");
load().catch((error) => {
  show("trouble");
  throw error;
});
