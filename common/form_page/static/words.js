// The page's own texts, in the language of the form or of its reader.

import { writeNumber } from "./number.js";
import english from "./words/en.js";

const LOCALES = document.body.dataset.locales.split(" ");
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/;
const HEBREW = /[\u0590-\u05ff\ufb1d-\ufb4f]/;

let words = english;

// Selects the language that the owner set; otherwise one of the reader's that is written in the direction of the form's title, so
// that the page has one direction. If the title is in Arabic or Hebrew letters and the reader has no such language, that of the
// letters.
export async function speak(locale, title = "") {
  for (const language of [locale, ...candidates(title)]) {
    const found = await load(language);
    if (found !== null && (locale || title === "" || found.dir === directionOf(title))) {
      words = found;
      document.documentElement.lang = language;
      break;
    }
  }
  document.documentElement.dir = words.dir;
  for (const element of document.querySelectorAll("[data-word]")) element.textContent = words[element.dataset.word];
}

function candidates(title) {
  const readers = navigator.languages.map((language) => language.toLowerCase().split("-")[0]);
  const letters = HEBREW.test(title) ? "he" : "ar";
  return [...readers, directionOf(title) === "rtl" ? letters : "en"];
}

// The direction of a text, by its first letter.
function directionOf(text) {
  const [first] = /\p{Letter}/u.exec(text) ?? [""];
  return RIGHT_TO_LEFT.test(first) ? "rtl" : "ltr";
}

async function load(language) {
  if (language === "en") return english;
  if (!LOCALES.includes(language)) return null;
  try {
    return (await import(`./words/${language}.js`)).default;
  } catch {
    return null;
  }
}

// A number of JSON's notation, as the language of the page is written where the reader is: `es` has another decimal mark in Mexico.
export function sayNumber(json) {
  const { lang } = document.documentElement;
  return writeNumber(json, navigator.languages.find((tag) => tag.split("-")[0].toLowerCase() === lang) ?? lang);
}

// A text of the page, with its placeholders filled in.
export function say(word, values = {}) {
  return words[word].replace(/\{(\w+)\}/g, (place, name) => (Object.hasOwn(values, name) ? values[name] : place));
}
