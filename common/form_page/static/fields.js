// The fields of a form, each with its label, hint, note and error.

import { jsonOf, lengthOf, problemOf } from "./check.js";
import { plain, readNumber } from "./number.js";
import { say, sayNumber } from "./words.js";

// The limits of the service, by type of field, in characters.
const MAX_LENGTHS = JSON.parse(document.body.dataset.maxLengths);

export function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export class Field {
  // The chosen meaning of a text that could be two numbers: {text, json}.
  #chosen = null;
  #isLocked = false;

  // `autocomplete` is the value of the HTML attribute; `onInput` is called when the value changes.
  constructor(definition, { index, isLast, autocomplete, onInput }) {
    Object.assign(this, definition);
    const id = `field-${index}`;
    const isTextarea = this.type === "textarea";
    this.isChoice = this.choices !== undefined;
    const tag = this.isChoice ? "select" : isTextarea ? "textarea" : "input";
    this.isTick = this.type === "checkbox";
    // The prefix keeps the name from hiding a member of the form.
    this.input = make(tag, { id, name: `answer-${this.key}`, dir: "auto" });
    for (const choice of this.isChoice ? ["", ...this.choices] : []) this.input.append(make("option", { value: choice }, choice));
    // Not type=number, which silently changes what was typed.
    if (tag === "input") this.input.type = this.type === "number" ? "text" : this.type;
    if (this.type === "number") Object.assign(this.input, { inputMode: "decimal", autocomplete: "off" });
    if (this.type === "email") this.input.autocomplete = "email";
    if (autocomplete) this.input.autocomplete = autocomplete;
    if (autocomplete?.startsWith("tel") && this.type === "text") this.input.inputMode = "tel";
    if (tag === "input") this.input.enterKeyHint = isLast ? "send" : "next";
    this.input.setAttribute("aria-required", this.required);
    this.label_ = make("label", { htmlFor: id, dir: "auto" }, this.label);
    if (!this.required) this.label_.append(" ", make("span", { className: "optional" }, say("optional")));
    // Beside the field and not in it, where it would look like an answer and be gone while one is typed.
    this.hint = make("p", { id: `${id}-hint`, className: "hint", dir: "auto" }, this.placeholder ?? "");
    this.hint.hidden = !this.placeholder;
    this.error = make("p", { id: `${id}-error`, className: "error", hidden: true });
    this.note = make("p", { id: `${id}-note`, className: "note", hidden: true });
    this.note.setAttribute("role", "status");
    const parts = this.isTick ? [this.input, this.label_, this.hint] : [this.label_, this.hint, this.input];
    this.element = make("div", { className: this.isTick ? "field tick" : "field" }, ...parts, this.error, this.note);
    this.#describe();
    this.input.addEventListener("input", () => {
      this.showProblem(null);
      this.#tell();
      onInput();
    });
    this.input.addEventListener("click", (event) => {
      if (this.#isLocked && this.isTick) event.preventDefault();
    });
  }

  get value() {
    return this.isTick ? this.input.checked : this.input.value;
  }

  set value(value) {
    if (this.isTick) this.input.checked = value === true;
    // What is no choice any more is no answer.
    else if (this.isChoice) this.input.value = this.choices.includes(value) ? value : "";
    else if (typeof value === "string") this.input.value = value;
    this.#tell();
  }

  get isEmpty() {
    return this.isTick ? !this.input.checked : this.input.value === "";
  }

  get problem() {
    return problemOf(this, this.value, MAX_LENGTHS[this.type], this.#meant);
  }

  get json() {
    return jsonOf(this, this.value, this.#meant);
  }

  get #meant() {
    return this.#chosen?.text === this.value ? this.#chosen.json : undefined;
  }

  // Checks the value, shows its first problem, and returns it as text; null if there is none.
  check() {
    const problem = this.problem;
    const message = problem && say(problem.word, problem.values);
    this.showProblem(message);
    if (problem?.choices) this.#offer(problem.choices);
    return message;
  }

  showProblem(message) {
    this.element.querySelector(".choices")?.remove();
    this.error.textContent = message ?? "";
    this.error.hidden = !message;
    if (message) this.input.setAttribute("aria-invalid", "true");
    else this.input.removeAttribute("aria-invalid");
    this.#describe();
  }

  // Shows that the link has filled it in.
  markPrefilled() {
    this.note.hidden = false;
    this.note.textContent = say("byLink");
    this.#describe(this.note);
  }

  // Answers that are being sent can be read and copied, but not changed.
  lock(isLocked) {
    this.#isLocked = isLocked;
    if (this.isTick) this.input.setAttribute("aria-disabled", isLocked);
    else if (this.isChoice) this.input.disabled = isLocked;
    else this.input.readOnly = isLocked;
  }

  #describe(...others) {
    const described = [this.error, this.hint, ...others].filter((element) => !element.hidden).map((element) => element.id);
    if (described.length > 0) this.input.setAttribute("aria-describedby", described.join(" "));
    else this.input.removeAttribute("aria-describedby");
  }

  // The number that was read, as the page writes it; undefined if there is none.
  get #read() {
    const json = this.type === "number" ? (this.#meant ?? readNumber(this.value).json) : undefined;
    return json === undefined ? undefined : sayNumber(json);
  }

  // Shows the characters left, near the limit, or how a number was read if it differs from what was typed. Updated while typing, so
  // that nothing moves when the field is left.
  #tell(read = this.#read) {
    const max = MAX_LENGTHS[this.type];
    const left = max === undefined ? undefined : max - lengthOf(this.value);
    const isNear = left >= 0 && left <= Math.max(20, max * 0.1);
    // Digits of ASCII are as good as those of the language.
    const isReadOtherwise = read !== undefined && ![read, plain(read)].includes(this.value.trim());
    this.note.hidden = !isNear && !isReadOtherwise;
    // Isolated, so that its minus stays before it in either direction of the page.
    const number = make("bdi", {}, read ?? "");
    this.note.replaceChildren(...(isNear ? [say("charactersLeft", { count: left })] : isReadOtherwise ? ["= ", number] : []));
  }

  // Asks which of two numbers is meant.
  #offer([whole, decimal]) {
    const lower = Math.trunc(Number(decimal));
    const [low, high] = [lower, lower + Math.sign(lower || 1)].map((bound) => sayNumber(String(bound)));
    const between = say("between", { number: sayNumber(decimal), low, high });
    const button = (json, text) => {
      const button = make("button", { type: "button", className: "choice", dir: "auto" }, text);
      button.addEventListener("click", () => {
        this.#chosen = { text: this.value, json };
        this.showProblem(null);
        this.#tell(text);
        this.input.focus();
      });
      return button;
    };
    const choices = make("div", { className: "choices" }, button(whole, sayNumber(whole)), button(decimal, between));
    choices.setAttribute("role", "group");
    choices.setAttribute("aria-labelledby", this.error.id);
    this.error.after(choices);
  }
}
