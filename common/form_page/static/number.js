// Reads numbers as people write them into JSON's notation, and writes them as a language does: digit for digit, never through a
// double. A text that could be two numbers is not guessed.

// The digit zero of each supported script; the nine others follow it.
const ZEROS = [0x660, 0x6f0, 0x966, 0x9e6, 0xff10];

// Returns {json}; {choices: [json, json]} if it could be either; {tooLarge: true}; or an empty object if it is not a number.
export function readNumber(text) {
  const [, sign, body] = /^([+-]?)(.*)$/s.exec(plain(text.trim()));
  if (!/\d/.test(body)) return {};
  if (/^\d+(\.\d+)?e[+-]?\d+$/i.test(body)) return judged(sign, body.replace(/^0+(?=\d)/, ""));
  const marks = body.replace(/[^.,]/g, "");
  const [last] = marks.slice(-1);
  const alone = marks.length === 1;
  const arabic = body.split("\u066b");
  if (arabic.length === 2) {
    const whole = grouped(arabic[0]);
    return whole === null || !/^\d+$/.test(arabic[1]) ? {} : judged(sign, `${whole}.${arabic[1]}`);
  }
  if (alone && /^[1-9]\d{0,2}[.,]\d{3}$/.test(body)) {
    const [whole, rest] = body.split(last);
    return { choices: [`${sign.replace("+", "")}${whole}${rest}`, `${sign.replace("+", "")}${whole}.${rest}`] };
  }
  // If there are two kinds of marks, the last one is the decimal mark; several marks of one kind separate groups.
  const isDecimal = alone || (marks.includes(".") && marks.includes(",") && marks.indexOf(last) === marks.length - 1);
  const at = isDecimal ? body.lastIndexOf(last) : body.length;
  const [whole, fraction] = [body.slice(0, at), body.slice(at + 1)];
  const digits = grouped(whole);
  if (digits === null || (isDecimal && !/^\d+$/.test(fraction))) return {};
  return judged(sign, isDecimal ? `${digits}.${fraction}` : digits);
}

// Writes a number of JSON's notation with the minus, the decimal mark and the digits of a language. Without groups, so that a mark
// is a decimal mark.
export function writeNumber(json, language) {
  const format = new Intl.NumberFormat(language, { useGrouping: false });
  const digits = Array.from({ length: 10 }, (_, digit) => format.format(digit));
  const parts = Object.fromEntries(format.formatToParts(-0.5).map(({ type, value }) => [type, value]));
  const signs = { "-": parts.minusSign, ".": parts.decimal };
  return json.replace(/[-.\d]/g, (sign) => signs[sign] ?? digits[sign]);
}

// Converts to ASCII digits and a plain minus, without direction marks.
export function plain(text) {
  const digit = (character) => {
    const code = character.codePointAt(0);
    const zero = ZEROS.find((zero) => code >= zero && code <= zero + 9);
    return zero === undefined ? character : String(code - zero);
  };
  return Array.from(text, digit).join("").replace(/[\u2212\u2013]/g, "-").replace(/[\u200e\u200f\u061c]/g, "");
}

// The digits of a whole number without group separators; null if it is not one.
function grouped(whole) {
  if (whole === "") return "0";
  if (/^\d+$/.test(whole)) return whole.replace(/^0+(?=\d)/, "");
  const groups = whole.split(/[.,]|[\s'\u2019\u066c]/);
  const between = new Set(whole.replace(/\d/g, ""));
  const inThrees = groups.slice(1).every((group) => /^\d{3}$/.test(group));
  // As in India: the last group has three digits, those before it two.
  const inTwos = groups.slice(1, -1).every((group) => /^\d{2}$/.test(group)) && /^\d{3}$/.test(groups.at(-1));
  const first = /^\d{1,3}$/.test(groups[0]);
  return between.size === 1 && first && (inThrees || (inTwos && between.has(","))) ? groups.join("").replace(/^0+(?=\d)/, "") : null;
}

function judged(sign, digits) {
  const json = `${sign === "-" ? "-" : ""}${digits}`;
  return Number.isFinite(Number(json)) ? { json } : { tooLarge: true };
}
