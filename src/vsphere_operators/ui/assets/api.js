// Requests to the manager. Paths are relative, so that the page also works behind a proxy path.

const TOKEN = "token";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

export async function request(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const response = await fetch(path, { ...options, headers, redirect: "error" });
  if (!response.ok) throw new ApiError(response.status, await messageOf(response));
  return response;
}

export async function getJson(path, options) {
  return (await request(path, options)).json();
}

async function messageOf(response) {
  const text = (await response.text().catch(() => "")).slice(0, 1000);
  try {
    const body = JSON.parse(text);
    return String(body.message ?? body.error ?? text);
  } catch {
    return text.trim() || response.statusText || `HTTP ${response.status}`;
  }
}
