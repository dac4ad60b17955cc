// The page of a public form: shows it, lets it be filled in, submits it. Plain modules, no dependency.
//
// One idempotency key belongs to what is sent, however often the page is loaded, so that however often it is sent, it counts
// once. When it is not known whether the service has taken it (no answer, or 503), it may have been recorded under that key:
// from then on the fields are locked, and only the same content is sent again.

import { Draft } from "./draft.js";
import { Field, make } from "./fields.js";
import { isOld, solve, tooSoonFor } from "./proof.js";
import { say, speak } from "./words.js";

const SUBMIT = `${document.body.dataset.baseUrl}/public/workflow-forms/forms/submit`;
const TOKEN = new URLSearchParams(location.search).get("token") ?? history.state?.token ?? "";
// Answers that the link brings, as #key=value&key=value.
const BROUGHT = new URLSearchParams(location.hash.slice(1));
const IS_FRAMED = window.top !== window;
// Out of the address bar, where others may see it; a reload finds it all the same.
if (!IS_FRAMED) history.replaceState({ token: TOKEN }, "", location.pathname);
const TIMEOUT = 30_000;
// Tries that the page makes by itself before it asks.
const TRIES = 6;

const $ = (id) => document.getElementById(id);
// What the service has told: the form, how its page looks, what must be proven.
let told;
let draft;
let fields = [];
let busy = false;
// Whether something was written that is not sent.
let unsent = false;

function show(id) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== id;
  $(id).querySelector("h1[tabindex]")?.focus();
}

// Asks the service, and gives up in time. Gives the answer with its text, and `retry` in seconds where it is worth while; status
// 0 is no answer.
async function call(url, request) {
  const giveUp = new AbortController();
  const timer = setTimeout(() => giveUp.abort(), TIMEOUT);
  try {
    const options = { ...request, credentials: "omit", cache: "no-store", signal: giveUp.signal };
    const answer = await fetch(url, options);
    const retry = Number(answer.headers.get("Retry-After")) || 5;
    return { status: answer.status, text: await answer.text(), retry };
  } catch {
    return { status: 0, text: "", retry: 5 };
  } finally {
    clearTimeout(timer);
  }
}

// Something in between may answer, too, and not in JSON.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// Waits, and counts down in an element that is not read out.
async function wait(seconds, countdown) {
  for (let left = Math.ceil(seconds); left > 0; left--) {
    countdown.textContent = say("nextTry", { seconds: left });
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
  countdown.textContent = "";
}

// Reading

async function load() {
  const { told: text, status, retry } = document.body.dataset;
  if (text) return begin(JSON.parse(text));
  await speak(null);
  // A document that came without a form and does not say why: the token was not in its address.
  let answer = status ? { status: Number(status), retry: Number(retry) || 5 } : await ask();
  for (let tries = 1; ; tries++) {
    if (answer.told) return begin(answer.told);
    if (answer.status === 404) return unavailable();
    const again = [0, 200, 429, 502, 503, 504].includes(answer.status) && tries < TRIES;
    document.title = say("form");
    $("trouble-text").textContent = say(!again ? "later" : answer.status === 429 ? "troubleCrowded" : "troubleNotResponding");
    $("reload").hidden = again;
    show("trouble");
    if (!again) return;
    await wait(answer.retry, $("trouble-countdown"));
    // Whether a form may be shown in this frame, its own document says.
    if (IS_FRAMED) return location.reload();
    answer = await ask();
  }
}

// Asks for the document of the form.
async function ask() {
  const answer = await call(`${location.pathname}?token=${encodeURIComponent(TOKEN)}`);
  const body = new DOMParser().parseFromString(answer.text, "text/html").body;
  // Something in between may answer with a page, too.
  const isOurs = body.dataset.baseUrl !== undefined;
  return { ...answer, status: isOurs || answer.status !== 404 ? answer.status : 502, told: parsed(body.dataset.told || null) };
}

async function unavailable() {
  document.title = say("unavailable");
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

async function begin(what) {
  told = what;
  await speak(told.locale, told.form.title);
  draft = Draft.of(TOKEN, told.form);
  dress();
  render();
  const isLeft = Object.keys(draft.values).length === 0 && draft.takeLeft();
  $("filled-in").hidden = !isLeft;
  $("earlier").hidden = draft.earlier === null;
  for (const field of fields) if (Object.hasOwn(draft.values, field.key)) field.value = draft.values[field.key];
  unsent = fields.some((field) => !field.isEmpty);
  $("prefilled").hidden = !prefill();
  show("fill-in");
  if (draft.sending !== null) await send(draft.sending, true);
}

// Whose form it is.
function dress() {
  const { organization, logo, colors, button, privacy_url, continue_url } = told;
  for (const [name, color] of Object.entries(colors ?? {})) {
    document.documentElement.style.setProperty(`--owner-${name.replace("_", "-")}`, color);
  }
  $("owner").hidden = !organization && !logo;
  $("organization").textContent = organization ?? "";
  $("organization").hidden = !organization;
  $("logo").hidden = !logo;
  if (logo) $("logo").src = logo;
  if (button) $("submit").textContent = button;
  for (const [id, url] of [["privacy", privacy_url], ["next", continue_url]]) {
    $(id).hidden = !url;
    if (url) $(id).querySelector("a").href = url;
  }
}

function render() {
  const { form, autocomplete = {}, challenge } = told;
  document.title = form.title;
  $("title").textContent = form.title;
  $("description").textContent = form.description ?? "";
  $("description").hidden = !form.description;
  fields = form.fields.map((field, index) => {
    const autofill = Object.hasOwn(autocomplete, field.key) ? autocomplete[field.key] : undefined;
    const onInput = () => {
      unsent = true;
      draft.note(values());
    };
    return new Field(field, { index, isLast: index === form.fields.length - 1, autocomplete: autofill, onInput });
  });
  $("fields").replaceChildren(...fields.map((field) => field.element));
  // People don't see it; programs that fill in everything do.
  document.querySelector(".trap").hidden = challenge === null;
}

// Fills in what the link brings, where nothing was written; never a box, which is ticked by a person or not at all. True if
// anything was filled in.
function prefill() {
  const filled = fields.filter((field) => !field.isTick && field.isEmpty && (BROUGHT.get(field.key) ?? "") !== "");
  for (const field of filled) {
    // As an input takes it: one line.
    field.value = field.type === "textarea" ? BROUGHT.get(field.key) : BROUGHT.get(field.key).replace(/[\r\n]+/g, " ");
    field.markPrefilled();
  }
  return filled.length > 0;
}

// What stands in the fields, by their keys, one of which may be __proto__.
function values() {
  return Object.assign(Object.create(null), Object.fromEntries(fields.map((field) => [field.key, field.value])));
}

// Lists what is wrong, each linked to its field where it has one, and takes the focus there.
function summarize(problems) {
  const items = problems.map(({ field, message }) => {
    if (!field) return make("li", { dir: "auto" }, message);
    const link = make("a", { href: `#${field.input.id}` }, make("bdi", {}, field.label), `: ${message}`);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      field.input.focus();
    });
    return make("li", {}, link);
  });
  $("summary").querySelector("ul").replaceChildren(...items);
  document.title = items.length > 0 ? say("errorTitle", { title: told.form.title }) : told.form.title;
  $("summary").hidden = items.length === 0;
  if (items.length > 0) $("summary").focus();
}

// Text, so that numbers keep their digits and a key may be __proto__.
function payload() {
  const members = fields.map((field) => [field.key, field.json]).filter(([, json]) => json !== undefined);
  return `{${members.map(([key, json]) => `${JSON.stringify(key)}:${json}`).join(",")}}`;
}

// Submitting

async function submit(event) {
  event.preventDefault();
  if (busy) return;
  const checked = fields.map((field) => ({ field, message: field.check() }));
  const problems = checked.filter(({ message }) => message);
  summarize(problems);
  if (problems.length === 0) {
    const content = payload();
    await send({ key: draft.keyOf(content), payload: content });
  }
}

// What the service has refused, by the label of the field that it names by its key.
function refusal(message) {
  const [, key, problem] = /^Field ("(?:[^"\\]|\\.)*"): (.+)$/s.exec(message) ?? [];
  const field = fields.find((field) => JSON.stringify(field.key) === key);
  field?.showProblem(problem);
  return field ? { field, message: problem } : { message };
}

function setBusy(text, locked) {
  busy = text !== null;
  $("submit").setAttribute("aria-disabled", busy);
  $("submit").hidden = locked;
  for (const field of fields) field.lock(busy || locked);
  $("progress").hidden = !busy && !locked;
  $("progress-text").textContent = text ?? "";
  for (const button of [$("retry"), $("anew")]) button.hidden = true;
  // What had the focus may be gone.
  if (locked) $("progress").focus();
  $("progress").scrollIntoView({ block: "nearest" });
}

// The proof that goes with a key, as a member of what is sent; nothing where none is wanted.
async function proofOf(key) {
  if (told.challenge === null) return "";
  if (isOld()) told.challenge = (await ask()).told?.challenge ?? told.challenge;
  const nonce = await solve(told.challenge, key);
  await new Promise((resolve) => setTimeout(resolve, tooSoonFor(told.challenge)));
  return `"proof":${JSON.stringify({ challenge: told.challenge, nonce, trap: $("trap").value })},`;
}

// Sends a payload under its key until there is an answer. `uncertain`: the service may have it already.
async function send(sending, uncertain = false) {
  // Should the page be left now, the service may have it.
  draft.noteSending(sending);
  setBusy(say("sending"), uncertain);
  const proof = await proofOf(sending.key);
  const body = `{"token":${JSON.stringify(TOKEN)},"idempotencyKey":"${sending.key}",${proof}"payload":${sending.payload}}`;
  const request = { method: "POST", headers: { "Content-Type": "application/json" }, body };
  for (let tries = 1; ; tries++) {
    setBusy(say("sending"), uncertain);
    const answer = await call(SUBMIT, request);
    const said = parsed(answer.text);
    const code = said?.error?.code;
    if (answer.status === 200 && said?.status === "accepted") return end();
    if (answer.status === 404 && code === "workflow_public_form_unavailable") return unavailable();
    // The service looks at the key first: what it finds invalid was not taken by an earlier try either. Nobody else knows.
    const isInvalid = answer.status === 400 && code === "invalid_input";
    const isRefused = answer.status >= 400 && answer.status < 500 && ![404, 408, 429].includes(answer.status);
    if (isInvalid || (isRefused && !uncertain)) {
      draft.noteSending(null);
      setBusy(null, false);
      return summarize([refusal(said?.error?.message ?? say("refused"))]);
    }
    // Sent too often: nothing has been taken. Everything else leaves it open.
    uncertain ||= answer.status !== 429;
    if (tries % TRIES === 0) {
      if (await isToBeSentAgain()) continue;
      draft.noteSending(null);
      return setBusy(null, false);
    }
    setBusy(say(answer.status === 429 ? "crowded" : "notResponding"), uncertain);
    await wait(answer.retry, $("progress-countdown"));
  }
}

// Asks the person.
async function isToBeSentAgain() {
  setBusy(say("notSent"), true);
  for (const button of [$("retry"), $("anew")]) button.hidden = false;
  $("retry").focus();
  return new Promise((resolve) => {
    $("retry").addEventListener("click", () => resolve(true), { once: true });
    $("anew").addEventListener("click", () => resolve(false), { once: true });
  });
}

function end() {
  draft.end();
  unsent = false;
  document.title = say("thanksTitle", { title: told.form.title });
  $("confirmation").textContent = told.form.confirmationMessage ?? say("received");
  show("done");
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
