// Deep links: #/VIEW/KIND/ID/TAB?q=FILTER. Everything that a person can select is in the address.

export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view, kind, id, tab] = path.split("/").map(decode);
  return {
    view: view || "hosts",
    kind: id ? kind : undefined,
    id: id || undefined,
    tab: tab || undefined,
    filter: new URLSearchParams(query).get("q") ?? "",
  };
}

export function routeTo({ view, kind, id, tab, filter }) {
  const parts = kind && id ? [view, kind, id, tab] : [view];
  const path = parts.filter(Boolean).map(encodeURIComponent).join("/");
  return `#/${path}${filter ? `?q=${encodeURIComponent(filter)}` : ""}`;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
