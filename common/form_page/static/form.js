// The page of a public form: shows it, lets it be filled in, submits it. Plain modules, no dependency.
//
// The content that is sent keeps one idempotency key, however often the page is loaded, so that it counts once however often it is
// sent. If it is unknown whether the service has taken it (no answer, or 503), it may be recorded under that key: from then on the
// fields are locked, and only the same content is sent again.

import { Draft } from "./draft.js";
import { Field, make } from "./fields.js";
import { Prover } from "./proof.js";
import { say, speak } from "./words.js";

const SUBMIT = `${document.body.dataset.baseUrl}/public/workflow-forms/forms/submit`;
const TOKEN = new URLSearchParams(location.search).get("token") ?? history.state?.token ?? "";
// Answers in the fragment of the link, as #key=value&key=value.
const FRAGMENT = location.hash.slice(1) || (history.state?.fragment ?? "");
const BROUGHT = new URLSearchParams(FRAGMENT);
const IS_FRAMED = window.top !== window;
// Removed from the address bar, where others may see it; a reload still finds it.
if (!IS_FRAMED) history.replaceState({ token: TOKEN, fragment: FRAGMENT }, "", location.pathname);
const TIMEOUT = 30_000;
// Automatic tries before the page asks the reader.
const TRIES = 6;

const $ = (id) => document.getElementById(id);
// The data of the document: the form, the look of its page, the challenge.
let told;
let draft;
// Set if the form needs a proof of work.
let prover = null;
let fields = [];
let busy = false;
// Whether there are answers that are not sent.
let unsent = false;

function show(id) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== id;
  $(id).querySelector("h1[tabindex]")?.focus();
}

// Calls the service with a timeout. Returns status and text of the answer, and `retry` in seconds; status 0 means no answer.
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

// A proxy may answer, too, and not in JSON.
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
    if (answer.status === 404) return dead();
    const again = [0, 200, 429, 502, 503, 504].includes(answer.status) && tries < TRIES;
    document.title = say("form");
    $("trouble-text").textContent = say(!again ? "later" : answer.status === 429 ? "troubleCrowded" : "troubleNotResponding");
    $("reload").hidden = again;
    show("trouble");
    if (!again) return;
    await wait(answer.retry, $("trouble-countdown"));
    // The document of the form decides whether it may be shown in this frame.
    if (IS_FRAMED) return location.reload();
    answer = await ask();
  }
}

// Fetches the document of the form.
async function ask() {
  const answer = await call(`${location.pathname}?token=${encodeURIComponent(TOKEN)}`);
  const body = new DOMParser().parseFromString(answer.text, "text/html").body;
  // A proxy may answer with a page, too.
  const isOurs = body.dataset.baseUrl !== undefined;
  return { ...answer, status: isOurs || answer.status !== 404 ? answer.status : 502, told: parsed(body.dataset.told || null) };
}

// The link was dead when the page was opened. Content that was being sent is sent once more: a closed form knows what it took.
async function dead() {
  const left = Draft.ofDead(TOKEN);
  if (left?.sending) {
    const answer = await post(left.sending);
    if (isAccepted(answer)) {
      draft = left;
      told = { form: left.form };
      return end();
    }
  }
  return unavailable();
}

function unavailable() {
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
  draft = Draft.of(TOKEN, told);
  if (told.challenge) prover = new Prover(told.challenge, async () => (await ask()).told?.challenge);
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

// Shows the organization and its logo.
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
  const { form, autocomplete = {} } = told;
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
  document.querySelector(".trap").hidden = prover === null;
}

// Fills in the answers of the link where nothing was typed; never a checkbox, which only a person may tick. True if any field holds
// an answer of the link.
function prefill() {
  const isBrought = (field) => !field.isTick && (BROUGHT.get(field.key) ?? "") !== "";
  // An input holds one line.
  const brought = (field) => (field.type === "textarea" ? BROUGHT.get(field.key) : BROUGHT.get(field.key).replace(/[\r\n]+/g, " "));
  for (const field of fields.filter((field) => isBrought(field) && field.isEmpty)) field.value = brought(field);
  const filled = fields.filter((field) => isBrought(field) && field.value === brought(field));
  for (const field of filled) field.markPrefilled();
  if (filled.length > 0) draft.note(values());
  return filled.length > 0;
}

// The values of the fields, by their keys, one of which may be __proto__.
function values() {
  return Object.assign(Object.create(null), Object.fromEntries(fields.map((field) => [field.key, field.value])));
}

// Lists the problems, each linked to its field if it has one, and moves the focus there.
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
    // What is being made can be tried.
    if (told.is_preview) {
      $("done").append($("reload"));
      return end();
    }
    const content = payload();
    await send({ key: draft.keyOf(content), payload: content });
  }
}

// The problem that the service reports, with the field that it names by its key.
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
  // The focused element may be hidden now.
  if (locked) $("progress").focus();
  $("progress").scrollIntoView({ block: "nearest" });
}

// Posts the content once.
function post({ key, payload, proof }) {
  const proven = proof ? `"proof":${JSON.stringify({ ...proof, trap: $("trap").value })},` : "";
  const body = `{"token":${JSON.stringify(TOKEN)},"idempotencyKey":"${key}",${proven}"payload":${payload}}`;
  return call(SUBMIT, { method: "POST", headers: { "Content-Type": "application/json" }, body });
}

function isAccepted(answer) {
  return answer.status === 200 && parsed(answer.text)?.status === "accepted";
}

// Makes the proof if one is needed, then posts. A failed proof counts as no answer, with nothing sent.
async function proveAndPost(sending) {
  if (prover !== null && !sending.proof) {
    try {
      sending.proof = await prover.prove(sending.key);
    } catch {
      return { status: 0, text: "", retry: 5, isUnsent: true };
    }
  }
  // Stored first, because the page may be left while the service takes it.
  draft.noteSending(sending);
  return post(sending);
}

// Sends a payload under its key until there is an answer. `uncertain`: the service may have it already.
async function send(sending, uncertain = false) {
  // Browsers may fill in the trap by themselves, which must not count as a program.
  if ($("trap").matches(":autofill")) $("trap").value = "";
  for (let tries = 1; ; tries++) {
    setBusy(say("sending"), uncertain);
    const answer = await proveAndPost(sending);
    const { code, message = "" } = parsed(answer.text)?.error ?? {};
    if (isAccepted(answer)) return end();
    if (answer.status === 404 && code === "workflow_public_form_unavailable") return unavailable();
    const isInvalid = answer.status === 400 && code === "invalid_input";
    // The service checks the proof before the key, so nothing is known of the key: try again with another proof.
    const isUnproven = isInvalid && prover !== null && message.startsWith("proof");
    if (isUnproven && !message.startsWith("proof.trap") && tries % TRIES !== 0) {
      delete sending.proof;
      await prover.renew();
      continue;
    }
    // The service checks the key before the payload, so an invalid payload was not taken by an earlier try either. Refusals of a
    // proxy do not say that.
    const isRefused = answer.status >= 400 && answer.status < 500 && ![404, 408, 429].includes(answer.status);
    if ((isInvalid && !isUnproven) || (isRefused && !uncertain)) {
      draft.noteSending(null);
      setBusy(null, false);
      // A program for passwords may have filled it in: who presses again is a person.
      $("trap").value = "";
      return summarize([isUnproven ? { message: say("refused") } : refusal(message || say("refused"))]);
    }
    // After a 429, or if nothing was sent, nothing has been taken. Any other answer leaves that open.
    uncertain ||= answer.status !== 429 && !answer.isUnsent;
    if (tries % TRIES === 0) {
      if (await isToBeSentAgain()) continue;
      draft.noteEarlier(sending);
      setBusy(null, false);
      return fields[0]?.input.focus();
    }
    setBusy(say(answer.status === 429 ? "crowded" : "notResponding"), uncertain);
    await wait(answer.retry, $("progress-countdown"));
  }
}

// Asks the reader.
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
  const own = told.form.confirmationMessage;
  // The owner's own words may thank, too.
  if (own) $("done").querySelector("h1").textContent = told.form.title;
  $("confirmation").textContent = own ?? say("received");
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
