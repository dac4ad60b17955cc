// What an answer must be: the service's own rules, so that what passes here is accepted there. Pure.

import { readNumber } from "./number.js";

// Of the HTML standard.
const EMAIL = /^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$/;

// How long a text is, as the service counts.
export function lengthOf(text) {
  let length = 0;
  for (const _ of text) length++;
  return length;
}

// Whether an answer is left out of what is sent. Whitespace is that of the service, which is not that of trim(); alone it is an
// answer only where a text of several lines is wanted.
function isLeftOut(field, value) {
  if (field.type === "textarea" && field.required) return value === "";
  return field.type !== "checkbox" && /^\p{White_Space}*$/u.test(value);
}

// What is wrong with a value (a boolean for a checkbox, a text otherwise), as {word, values}: a word of the page, and what stands
// in it; null where nothing is. `maxLength` is the field's, in characters, where it has one; `meant` the number that was chosen
// where there was a choice.
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

// The JSON text of a value without problem; undefined where it is left out. Text, so that numbers keep their digits.
export function jsonOf(field, value, meant) {
  if (isLeftOut(field, value)) return undefined;
  return field.type === "number" ? (meant ?? readNumber(value).json) : JSON.stringify(value);
}
