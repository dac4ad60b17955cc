// The page of a public form: reads the definition, lets it be filled in, submits it. Plain script, no dependency.
//
// One idempotency key belongs to one load of the page, so that however often an answer is sent, it counts once. When it is
// not known whether the service has taken it (no answer, or 503), the answer may have been recorded under that key: from
// then on the fields are locked, and only the same content is sent again.
"use strict";

(() => {
  const BASE = document.body.dataset.baseUrl + "/public/workflow-forms/forms";
  const TOKEN = new URLSearchParams(location.search).get("token") ?? history.state?.token ?? "";
  // Out of the address bar, where others may see it; a reload finds it all the same.
  history.replaceState({ token: TOKEN }, "", location.pathname);
  const KEY = Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
  const TIMEOUT = 30_000;
  // Tries that the page makes by itself before it asks.
  const TRIES = 6;
  const DEFAULT_CONFIRMATION = "Your answers have been received.";
  // By type of field, in characters: the service's own limits.
  const MAX_LENGTHS = JSON.parse(document.body.dataset.maxLengths);
  const EMAIL = /^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$/;

  const $ = (id) => document.getElementById(id);
  let definition;
  let inputs = [];
  let busy = false;

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
      return { status: answer.status, body: await answer.json(), retry };
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
      if (answer.status === 200) return render(answer.body);
      if (answer.status === 404) return unavailable();
      const again = [0, 429, 503].includes(answer.status) && tries < TRIES;
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

  function unavailable() {
    document.title = "This form is not available";
    show("unavailable");
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
    if (field.type !== "textarea") input.type = field.type;
    if (field.type === "number") input.step = "any";
    if (field.type === "email") input.autocomplete = "email";
    if (field.placeholder && field.type !== "checkbox") input.placeholder = field.placeholder;
    input.setAttribute("aria-required", field.required);
    const label = make("label", { htmlFor: id, dir: "auto" }, field.label);
    if (!field.required) label.append(" ", make("span", { className: "optional" }, "(optional)"));
    const error = make("p", { id: `${id}-error`, className: "error", hidden: true });
    const ticked = field.type === "checkbox";
    const parts = ticked ? [input, label, error] : [label, input, error];
    $("fields").append(make("div", { className: ticked ? "field tick" : "field" }, ...parts));
    input.addEventListener("input", () => setError(input, null));
    return input;
  }

  // Checking, by the service's rules

  function problem(field, input) {
    if (field.type === "checkbox") return field.required && !input.checked ? "Please tick this box." : null;
    if (input.validity.badInput) return "Please enter a number.";
    const value = input.value;
    if (value.trim() === "") {
      // Spaces alone are an answer only where text is free to be blank.
      return field.required ? "Please fill in this field." : null;
    }
    const max = MAX_LENGTHS[field.type];
    const length = [...value].length;
    if (length > max) return `Please use at most ${max} characters. You have used ${length}.`;
    if (field.type === "email" && !EMAIL.test(value)) return "Please enter an e-mail address, like name@example.com.";
    if (field.type === "number" && !Number.isFinite(Number(value))) return "Please enter a smaller number.";
    return null;
  }

  function setError(input, message) {
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
    $("summary").hidden = items.length === 0;
    if (items.length > 0) $("summary").focus();
  }

  function payload() {
    const values = definition.fields.map((field, index) => {
      const input = inputs[index];
      if (field.type === "checkbox") return [field.key, input.checked];
      if (input.value.trim() === "") return null;
      return [field.key, field.type === "number" ? Number(input.value) : input.value];
    });
    // Not Object.fromEntries on {}: a key may be __proto__.
    const members = values.filter(Boolean).map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`);
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
      if (message) problems.push({ input: inputs[index], message, label: field.label });
    });
    summarize(problems);
    if (problems.length === 0) {
      await send(`{"token":${JSON.stringify(TOKEN)},"idempotencyKey":"${KEY}","payload":${payload()}}`);
    }
  }

  function setBusy(text, locked) {
    busy = text !== null;
    $("submit").setAttribute("aria-disabled", busy);
    $("submit").hidden = locked;
    $("fields").disabled = busy || locked;
    $("progress").hidden = !busy && !locked;
    $("progress-text").textContent = text ?? "";
    $("retry").hidden = true;
    $("progress").scrollIntoView({ block: "nearest" });
  }

  async function send(body) {
    let uncertain = false;
    const request = { method: "POST", headers: { "Content-Type": "application/json" }, body };
    for (let tries = 1; ; tries++) {
      setBusy("Sending…", uncertain);
      const answer = await call(`${BASE}/submit`, request);
      if (answer.status === 200) {
        $("confirmation").textContent = definition.confirmationMessage ?? DEFAULT_CONFIRMATION;
        return show("done");
      }
      if (answer.status === 404) return unavailable();
      if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) {
        // Nothing has been taken, not by an earlier try either: a known key is answered as before.
        setBusy(null, false);
        return summarize([{ message: answer.body?.error?.message ?? "These answers were not accepted." }]);
      }
      // Sent too often: nothing has been taken. Everything else leaves it open.
      uncertain ||= answer.status !== 429;
      if (tries % TRIES === 0) {
        setBusy("Your answers could not be sent yet. They are kept on this page.", true);
        $("retry").hidden = false;
        $("retry").focus();
        await new Promise((resolve) => $("retry").addEventListener("click", resolve, { once: true }));
        continue;
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
  $("reload").addEventListener("click", () => location.reload());
  show("loading");
  load();
})();
