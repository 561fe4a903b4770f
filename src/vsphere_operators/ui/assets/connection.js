// Reads the model once, then follows its changes. EventSource cannot send a token, so the events
// are read by fetch.

import { ApiError, getJson, request } from "./api.js";

const SILENCE_MILLISECONDS = 30_000;
// As long as the manager takes at most to write the model.
const LOAD_MILLISECONDS = 60_000;
const FIRST_DELAY_MILLISECONDS = 500;
const MAX_DELAY_MILLISECONDS = 10_000;
const SILENT = "The manager has sent nothing for 30 s.";

class ConnectionProblem extends Error {}

export class Connection {
  // `askForToken` returns when the user has entered one.
  constructor(store, { onState, askForToken }) {
    this.state = "connecting";
    this.message = "";
    this.received = undefined;
    this.isRefused = false;
    this._store = store;
    this._onState = onState;
    this._askForToken = askForToken;
    this._abort = new AbortController();
    // Until when the request in progress must receive something.
    this._deadline = Infinity;
    this._wake = () => {};
  }

  async run() {
    setInterval(() => this._checkSilence(), 1000);
    addEventListener("online", () => this._wake());
    let delay = FIRST_DELAY_MILLISECONDS;
    for (;;) {
      const began = performance.now();
      try {
        if (this._store.revision === undefined) await this._load();
        await this._follow();
        // The manager ends each stream after some minutes; only a short one is a failure.
        if (performance.now() - began > MAX_DELAY_MILLISECONDS) {
          delay = FIRST_DELAY_MILLISECONDS;
          continue;
        }
        this._set("reconnecting", "The manager closed the connection.");
      } catch (error) {
        this._deadline = Infinity;
        if (error instanceof ApiError && error.status === 401) {
          this._set("unauthorized", error.message);
          await this._askForToken(error.message);
          this._set("connecting", "");
          continue;
        }
        this._explain(error);
      }
      // A connection that has held for a while is not a part of a series of failures.
      if (performance.now() - began > MAX_DELAY_MILLISECONDS) delay = FIRST_DELAY_MILLISECONDS;
      // Not all pages at the same moment after a restart.
      await this._sleep(delay * (0.75 + Math.random() / 2));
      delay = Math.min(delay * 2, MAX_DELAY_MILLISECONDS);
    }
  }

  retry() {
    this._wake();
  }

  _begin(milliseconds) {
    this._abort = new AbortController();
    this._deadline = performance.now() + milliseconds;
    return this._abort.signal;
  }

  async _load() {
    const signal = this._begin(LOAD_MILLISECONDS);
    const model = await getJson("topology", { cache: "no-cache", signal });
    this._store.replace(model);
    this._onReceived();
  }

  async _follow() {
    const signal = this._begin(SILENCE_MILLISECONDS);
    const since = encodeURIComponent(this._store.revision);
    const response = await request(`topology/events?since=${since}`, {
      cache: "no-store",
      signal,
    });
    this._onReceived();
    this._set("live", "");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      this._onReceived();
      for (const event of parser.feed(value)) {
        if (event.type === "reset" || !this._apply(event)) {
          // Read the whole model, after the delay: a manager that only resets must not be flooded.
          this._store.revision = undefined;
          this._abort.abort();
          throw new ConnectionProblem("The manager has restarted, or the page missed too many changes.");
        }
      }
    }
  }

  // Returns false if the event is of another process, which a proxy may have switched to.
  _apply({ type, data }) {
    if (type !== "change" && type !== "heartbeat") return true;
    const content = JSON.parse(data);
    if (epochOf(content.revision) !== epochOf(this._store.revision)) return false;
    if (type === "change") this._store.apply(content);
    else this._store.confirm(content);
    return true;
  }

  _onReceived() {
    this.received = Date.now();
    this._deadline = performance.now() + SILENCE_MILLISECONDS;
    if (this.state === "stale") this._set("live", "");
  }

  _checkSilence() {
    if (performance.now() > this._deadline) {
      this._deadline = Infinity;
      this._abort.abort(new ConnectionProblem(SILENT));
    }
    if (this.received === undefined || Date.now() - this.received < SILENCE_MILLISECONDS) return;
    if (this.state === "live" || this.state === "reconnecting") {
      this._set("stale", this.message || SILENT);
    } else {
      // The age in the banner grows.
      this._onState();
    }
  }

  _explain(error) {
    if (error instanceof ApiError && error.status === 403) {
      this._set("forbidden", error.message);
    } else if (error instanceof ApiError) {
      this.isRefused = true;
      this._set("reconnecting", `The manager answered ${error.status}: ${error.message}`);
    } else if (error instanceof ConnectionProblem) {
      this._set("reconnecting", error.message);
    } else {
      this._set("reconnecting", "The manager cannot be reached.");
    }
  }

  _set(state, message) {
    // Stale data stays stale until something arrives.
    if (this.state === "stale" && state === "reconnecting") state = "stale";
    if (state !== "reconnecting") this.isRefused = false;
    this.state = state;
    this.message = message;
    this._onState();
  }

  _sleep(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this._wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

// A revision is EPOCH-NUMBER; each process has its own epoch.
function epochOf(revision) {
  return revision?.slice(0, revision.lastIndexOf("-"));
}

// Server-Sent Events from pieces of text that may end anywhere.
class EventParser {
  constructor() {
    this._rest = "";
    this._type = "message";
    this._data = [];
  }

  feed(text) {
    const events = [];
    const lines = (this._rest + text).split("\n");
    this._rest = lines.pop();
    for (const line of lines) this._readLine(line.replace(/\r$/, ""), events);
    return events;
  }

  _readLine(line, events) {
    if (line === "") {
      if (this._type !== "message" || this._data.length) {
        events.push({ type: this._type, data: this._data.join("\n") });
      }
      this._type = "message";
      this._data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this._type = value;
    if (field === "data") this._data.push(value);
  }
}
