// Figures and times as text. Unknown values are an en dash.

const UNKNOWN = "–";
const UNITS = ["MB", "GB", "TB", "PB"];

export function megabytes(value) {
  if (value === undefined) return UNKNOWN;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  // "3 TB", not "3.0 TB".
  const text = value >= 100 ? String(Math.round(value)) : value.toFixed(1).replace(/\.0$/, "");
  return `${text} ${UNITS[unit]}`;
}

export function bytes(value) {
  return value === undefined ? UNKNOWN : megabytes(value / 1024 / 1024);
}

export function megahertz(value) {
  if (value === undefined) return UNKNOWN;
  return value >= 1000 ? `${(value / 1000).toFixed(1)} GHz` : `${value} MHz`;
}

export function percent(ratio) {
  return ratio === undefined ? UNKNOWN : `${Math.round(ratio * 100)} %`;
}

export function ratioOf(part, whole) {
  return part === undefined || !whole ? undefined : part / whole;
}

export function count(number, singular, plural = `${singular}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? singular : plural}`;
}

export function clock(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? UNKNOWN : date.toLocaleTimeString("en-GB");
}

export function dateAndClock(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return UNKNOWN;
  return `${date.toLocaleDateString("en-CA")} ${date.toLocaleTimeString("en-GB", {
    timeZoneName: "short",
  })}`;
}

export function hours(number) {
  return number < 48 ? `${number} h` : count(Math.floor(number / 24), "day");
}

export function ago(time, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - new Date(time).getTime()) / 1000));
  if (Number.isNaN(seconds)) return UNKNOWN;
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}
