// Creates elements. Text reaches the document only as text nodes and attributes, never as HTML:
// names come from vCenter and from users.

// Characters that change the direction of text around them, or that are invisible, could make a
// name appear as another one. They are shown as their code. Line breaks and tabs stay.
const INVISIBLE =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function plain(text) {
  return String(text).replace(INVISIBLE, codeOf);
}

function codeOf(char) {
  return `[U+${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`;
}

// `vars` sets CSS properties by script, which the Content-Security-Policy allows; a style attribute
// in HTML it does not.
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "vars") setProperties(element, value);
    else element.setAttribute(name, value === true ? "" : plain(value));
  }
  append(element, children);
  return element;
}

function setProperties(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== undefined && child !== null && child !== false) element.append(plain(child));
  }
}

const LONG_NAME = 24;
const TAIL = 8;

// A name of unknown direction, isolated from the text around it. Names of Nodes and replicas often
// begin with the same characters, so a long one is shortened in its middle, not at its end.
export function bdi(text) {
  const characters = Array.from(plain(text));
  if (characters.length <= LONG_NAME) return h("bdi", { class: "name" }, text);
  return h(
    "bdi",
    { class: "name long", title: text },
    h("span", { class: "name-start" }, characters.slice(0, -TAIL).join("")),
    h("span", { class: "name-end" }, characters.slice(-TAIL).join("")),
  );
}

export function badge(text, level = "plain") {
  return h("span", { class: `badge ${level}` }, text);
}

// A bar from 0 to 1. The text next to it has the figure, so a screen reader skips it.
export function meter(ratio, level) {
  if (ratio === undefined) return h("span", { class: "meter unknown", "aria-hidden": "true" });
  const width = `${Math.min(100, Math.max(0, ratio * 100)).toFixed(1)}%`;
  return h(
    "span",
    { class: "meter", "aria-hidden": "true" },
    h("span", { class: `fill ${level}`, vars: { width } }),
  );
}
