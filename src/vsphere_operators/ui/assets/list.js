// A list that has only the rows in view in the document: 500 hosts with 5,000 VMs would be 20,000
// elements.
//
// A row is {key, height, version, render}. It is rendered again only if its version changes,
// so that hovering, focus and a screen reader's position survive the changes of other rows.

const OVERSCAN_PIXELS = 240;

export class VirtualList {
  constructor(element) {
    this.element = element;
    this._rows = [];
    this._tops = [0];
    this._indexes = new Map();
    this._rendered = new Map();
    this._currentKey = undefined;
    this._selected = new Set();
    this._spacer = document.createElement("div");
    this._spacer.className = "spacer";
    this._spacer.setAttribute("role", "presentation");
    element.append(this._spacer);
    this._frame = undefined;
    element.addEventListener("scroll", () => this._schedule(), { passive: true });
    element.addEventListener("click", (event) => this._onClick(event));
    element.addEventListener("keydown", (event) => this._onKey(event));
    element.addEventListener("focusin", (event) => this._onFocus(event));
    new ResizeObserver(() => this._schedule()).observe(element);
  }

  // `selected` has the addresses of the links that show the selected object.
  setRows(rows, selected) {
    const anchor = this._anchor();
    this._selected = selected;
    this._rows = rows;
    this._indexes = new Map(rows.map((row, index) => [row.key, index]));
    this._tops = [0];
    for (const row of rows) this._tops.push(this._tops[this._tops.length - 1] + row.height);
    this._spacer.style.height = `${this._tops[rows.length]}px`;
    this._restore(anchor);
    this.draw();
  }

  // Another view: nothing of the old one stays.
  reset() {
    for (const { element } of this._rendered.values()) element.remove();
    this._rendered.clear();
    this._currentKey = undefined;
    this.element.scrollTop = 0;
    this._rows = [];
  }

  reveal(key) {
    const index = this._indexes.get(key);
    if (index === undefined) return false;
    const { scrollTop, clientHeight } = this.element;
    const top = this._tops[index];
    const bottom = this._tops[index + 1];
    if (top < scrollTop) this.element.scrollTop = Math.max(0, top - 40);
    else if (bottom > scrollTop + clientHeight) this.element.scrollTop = bottom - clientHeight + 40;
    this.draw();
    return true;
  }

  focus(key) {
    return this._focusLink(key, (links) => links[0]);
  }

  // After the details are closed: back to what was selected.
  focusSelected(key) {
    const isSelected = (link) => this._selected.has(link.getAttribute("href"));
    return this._focusLink(key, (links) => links.find(isSelected) ?? links[0]);
  }

  _focusLink(key, choose) {
    if (!this.reveal(key)) return false;
    const row = this._rendered.get(key)?.element;
    const target = choose([...(row?.querySelectorAll("a") ?? [])]);
    target?.focus({ preventScroll: true });
    return target !== undefined;
  }

  draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, this._indexAt(scrollTop - OVERSCAN_PIXELS));
    const last = this._indexAt(scrollTop + clientHeight + OVERSCAN_PIXELS);
    const wanted = new Set();
    for (let index = first; index <= last && index < this._rows.length; index += 1)
      wanted.add(index);
    // The row with the focus stays, otherwise the focus would be lost by scrolling.
    const focused = document.activeElement?.closest?.("[data-row]");
    if (focused && this._spacer.contains(focused)) {
      const index = this._indexes.get(focused.dataset.row);
      if (index !== undefined) wanted.add(index);
    }
    const keys = new Set([...wanted].map((index) => this._rows[index].key));
    for (const [key, { element }] of this._rendered) {
      if (keys.has(key)) continue;
      element.remove();
      this._rendered.delete(key);
    }
    const indexes = [...wanted].sort((left, right) => left - right);
    for (const index of indexes) this._place(index);
    this._restoreOrder(indexes);
    this._markLinks();
  }

  _place(index) {
    const row = this._rows[index];
    const old = this._rendered.get(row.key);
    let element = old?.element;
    if (old === undefined || old.version !== row.version) {
      element = row.render();
      element.classList.add("row");
      element.dataset.row = row.key;
      element.setAttribute("role", "listitem");
      if (old) this._swap(old.element, element);
      else this._insert(element, index);
      this._rendered.set(row.key, { element, version: row.version });
    }
    element.style.transform = `translateY(${this._tops[index]}px)`;
    element.style.height = `${row.height}px`;
    element.setAttribute("aria-setsize", this._rows.length);
    element.setAttribute("aria-posinset", index + 1);
  }

  _insert(element, index) {
    // In the order of the list, for screen readers and the Tab key.
    for (const sibling of this._spacer.children) {
      if (this._indexes.get(sibling.dataset.row) > index) {
        sibling.before(element);
        return;
      }
    }
    this._spacer.append(element);
  }

  // Rows that have changed places, as in a ranking. Moving an element would take its focus, so the
  // others move around it.
  _restoreOrder(indexes) {
    const elements = indexes.map((index) => this._rendered.get(this._rows[index].key).element);
    if (elements.every((element, at) => this._spacer.children[at] === element)) return;
    const kept = elements.findIndex((element) => element.contains(document.activeElement));
    if (kept < 0) this._spacer.append(...elements);
    else {
      elements[kept].before(...elements.slice(0, kept));
      elements[kept].after(...elements.slice(kept + 1));
    }
  }

  _swap(old, element) {
    const focused = old.contains(document.activeElement) ? document.activeElement : undefined;
    old.replaceWith(element);
    if (!focused) return;
    const links = [...element.querySelectorAll("a")];
    const same = links.find((link) => link.getAttribute("href") === focused.getAttribute("href"));
    (same ?? links[0])?.focus({ preventScroll: true });
  }

  _markLinks() {
    const key = this._rendered.has(this._currentKey) ? this._currentKey : this._firstVisibleKey();
    for (const [rowKey, { element }] of this._rendered) {
      const stop =
        rowKey === key
          ? (element.querySelector("a:focus") ?? element.querySelector("a"))
          : undefined;
      for (const link of element.querySelectorAll("a")) {
        link.tabIndex = link === stop ? 0 : -1;
        if (this._selected.has(link.getAttribute("href")))
          link.setAttribute("aria-current", "true");
        else if (link.hasAttribute("aria-current")) link.removeAttribute("aria-current");
      }
    }
  }

  _firstVisibleKey() {
    for (const row of this._rows.slice(Math.max(0, this._indexAt(this.element.scrollTop)))) {
      const element = this._rendered.get(row.key)?.element;
      if (element?.querySelector("a")) return row.key;
      if (!element) return undefined;
    }
    return undefined;
  }

  // The mouse may click anywhere in a row, as on its first link. Links, keys that open a tab and
  // the selection of text stay as they are.
  _onClick(event) {
    if (event.defaultPrevented || event.target.closest("a, button")) return;
    if (getSelection()?.toString()) return;
    const link = event.target.closest("[data-row]")?.querySelector("a");
    link?.dispatchEvent(
      new MouseEvent("click", {
        bubbles: true,
        cancelable: true,
        ctrlKey: event.ctrlKey,
        metaKey: event.metaKey,
        shiftKey: event.shiftKey,
      }),
    );
  }

  _onFocus(event) {
    const key = event.target.closest("[data-row]")?.dataset.row;
    if (key === undefined) return;
    this._currentKey = key;
    this._markLinks();
  }

  _onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const row = event.target.closest("[data-row]");
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    const index = row ? this._indexes.get(row.dataset.row) : -1;
    if (step) this._focusNear(index + step, Math.sign(step));
    else if (event.key === "Home") this._focusNear(0, 1);
    else if (event.key === "End") this._focusNear(this._rows.length - 1, -1);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const links = [...(row?.querySelectorAll("a") ?? [])];
      const next = links.indexOf(event.target) + (event.key === "ArrowRight" ? 1 : -1);
      links[Math.min(links.length - 1, Math.max(0, next))]?.focus({ preventScroll: true });
    } else return;
    event.preventDefault();
  }

  // The nearest row in a direction that has something to focus; headings of groups may have none.
  _focusNear(index, direction) {
    index = Math.min(this._rows.length - 1, Math.max(0, index));
    while (index >= 0 && index < this._rows.length) {
      if (this.focus(this._rows[index].key)) return;
      index += direction;
    }
  }

  _indexAt(pixels) {
    let low = 0;
    let high = this._rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this._tops[middle + 1] <= pixels) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The first row in view and where it is, so that rows that come or go above it do not move it.
  _anchor() {
    const { scrollTop } = this.element;
    if (scrollTop === 0 || this._rows.length === 0) return undefined;
    const index = this._indexAt(scrollTop);
    const row = this._rows[index];
    return row && { key: row.key, offset: scrollTop - this._tops[index] };
  }

  _restore(anchor) {
    const index = anchor && this._indexes.get(anchor.key);
    if (index === undefined) return;
    const scrollTop = this._tops[index] + anchor.offset;
    if (scrollTop !== this.element.scrollTop) this.element.scrollTop = scrollTop;
  }

  _schedule() {
    this._frame ??= requestAnimationFrame(() => {
      this._frame = undefined;
      this.draw();
    });
  }
}
