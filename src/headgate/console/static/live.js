// Keeps the part of a page marked data-live current: server-sent events from the page's own address.
"use strict";
(() => {
  const region = document.querySelector("[data-live]");
  const mark = document.getElementById("mark");
  const state = document.getElementById("mark-state");
  const button = document.getElementById("mark-pause");
  const find = document.querySelector("[data-live-find]");
  const RETRY_MS = 3000, SILENT_MS = 15000;
  let source = null, timer = 0, silence = 0, trouble = 0, paused = false, at = "";

  const say = (live, text) => {
    mark.classList.toggle("on", live);
    const whole = live || !at ? text : `${text}, last seen`;
    if (state.textContent !== whole) state.textContent = whole;
  };

  // What can have the focus, and what the same thing is called in the next text.
  const things = () => [...region.querySelectorAll("a[href], summary, [tabindex]")];
  const named = thing => thing.tagName + (thing.getAttribute("href") || thing.parentElement.dataset.keep || thing.getAttribute("aria-label") || "");

  // What has the focus keeps it, and what was opened stays open.
  const put = html => {
    const selection = getSelection();
    if (!selection.isCollapsed && region.contains(selection.anchorNode)) return;
    const focused = region.contains(document.activeElement) ? document.activeElement : null;
    const name = focused && named(focused);
    const place = focused && things().filter(thing => named(thing) === name).indexOf(focused);
    const open = new Map([...region.querySelectorAll("details[data-keep]")].map(part => [part.dataset.keep, part.open]));
    region.innerHTML = html;
    region.querySelectorAll("details[data-keep]").forEach(part => { if (open.has(part.dataset.keep)) part.open = open.get(part.dataset.keep); });
    if (!focused) return;
    const same = things().filter(thing => named(thing) === name);
    const next = same[place] || same[0];
    if (next) next.focus({ preventScroll: true });
  };

  const close = () => { [timer, silence, trouble].forEach(clearTimeout); trouble = 0; if (source) source.close(); source = null; };
  const lost = () => { say(false, "Not live"); close(); timer = setTimeout(open, RETRY_MS); };
  const heard = () => { [silence, trouble].forEach(clearTimeout); trouble = 0; silence = setTimeout(lost, SILENT_MS); };

  function open() {
    close();
    if (paused || document.hidden) return;
    source = new EventSource(location.href.split("#")[0]);
    silence = setTimeout(lost, SILENT_MS);
    source.addEventListener("beat", heard);
    source.onmessage = event => {
      heard();
      const told = JSON.parse(event.data);
      put(told.html);
      if (told.at) { at = told.at; time().textContent = at; }
      say(!told.problem, told.problem ? "Not live" : "Live");
    };
    // A stream that ended is opened again by the browser; only what stays away is told.
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) lost();
      else if (!trouble) trouble = setTimeout(lost, RETRY_MS);
    };
  }

  const time = () => {
    let found = document.getElementById("mark-at");
    if (!found) { found = document.createElement("time"); found.id = "mark-at"; state.after(" ", found); }
    return found;
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Go on" : "Pause";
    if (paused) { close(); say(false, "Paused"); } else open();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) open(); else close(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", event => { if (event.persisted) open(); });

  if (find) {
    let typed = 0;
    find.addEventListener("input", () => {
      clearTimeout(typed);
      typed = setTimeout(() => {
        const address = new URL(location.href);
        if (find.value.trim()) address.searchParams.set("find", find.value.trim()); else address.searchParams.delete("find");
        history.replaceState(null, "", address);
        open();
      }, 200);
    });
  }
  at = (document.getElementById("mark-at") || {}).textContent || "";
  open();
})();
