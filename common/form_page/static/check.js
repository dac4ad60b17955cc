// The validation of answers, by the rules of the service, so that valid answers are accepted there. Pure.

import { readNumber } from "./number.js";

// The rule of the HTML standard.
const EMAIL = /^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$/;

// The length of a text, as the service counts it.
export function lengthOf(text) {
  let length = 0;
  for (const _ of text) length++;
  return length;
}

// Whether an answer is not sent. Whitespace is as the service defines it, which is not that of trim(); alone it is an answer only
// in a text of several lines.
function isLeftOut(field, value) {
  if (field.type === "textarea" && field.required) return value === "";
  return field.type !== "checkbox" && /^\p{White_Space}*$/u.test(value);
}

// The problem of a value (a boolean for a checkbox, a text otherwise), as {word, values}: a text of the page and its placeholders;
// null if there is none. `maxLength` is that of the field, in characters, if it has one; `meant` is the number that was chosen if
// there was a choice.
export function problemOf(field, value, maxLength, meant) {
  if (field.type === "checkbox") return field.required && !value ? { word: "tick" } : null;
  if (isLeftOut(field, value)) return field.required ? { word: "required" } : null;
  const count = lengthOf(value);
  if (count > maxLength) return { word: "tooLong", values: { max: maxLength, count } };
  if (/\p{Surrogate}/u.test(value)) return { word: "unprintable" };
  if (field.type === "email" && !EMAIL.test(value)) return { word: "email" };
  return field.type === "number" && meant === undefined ? problemOfNumber(value) : null;
}

function problemOfNumber(value) {
  const { json, tooLarge, choices } = readNumber(value);
  if (json !== undefined) return null;
  if (tooLarge) return { word: "smallerNumber" };
  return choices ? { word: "whichNumber", choices } : { word: "number" };
}

// The JSON text of a valid value; undefined if it is not sent. Text, so that numbers keep their digits.
export function jsonOf(field, value, meant) {
  if (isLeftOut(field, value)) return undefined;
  return field.type === "number" ? (meant ?? readNumber(value).json) : JSON.stringify(value);
}
