"use strict";
// Adds to pages that work without it: changes as they happen, copying, filters that apply while typing, and
// times in the reader's zone.
(() => {
  const { root, at, live } = document.body.dataset;
  const say = (text) => { document.getElementById("liveness").textContent = text; };
  const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

  const improve = (part) => {
    for (const time of part.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (!Number.isNaN(moment.valueOf())) time.textContent = zoned.format(moment);
    }
    for (const button of part.querySelectorAll("button.copy")) button.hidden = !navigator.clipboard;
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // Blocks as the server has sent them, before they were improved: what has not changed stays as it is.
  const sent = new Map();
  for (const name of live?.split(" ") ?? []) sent.set(name, document.getElementById(name)?.innerHTML);
  const replace = (name, html) => {
    const block = document.getElementById(name);
    if (!block) return;
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    if (sent.get(name) === fresh.innerHTML) return;
    sent.set(name, fresh.innerHTML);
    improve(fresh.content);
    const before = new Set([...block.querySelectorAll("tr, article, li")].map((part) => part.textContent));
    const focused = block.contains(document.activeElement) ? address(document.activeElement) : null;
    const open = new Map([...block.querySelectorAll("details")].map((part) => [key(part), part.open]));
    block.replaceChildren(fresh.content);
    for (const part of block.querySelectorAll("tr, article, li")) {
      if (before.size && !before.has(part.textContent)) part.classList.add("fresh");
    }
    for (const part of block.querySelectorAll("details")) part.open = open.get(key(part)) ?? part.open;
    if (focused) [...block.querySelectorAll("a, button, input")].find((part) => address(part) === focused)?.focus();
  };
  const key = (details) => (details.closest("article")?.querySelector("a")?.href ?? "") + details.querySelector("summary")?.textContent;
  const address = (part) => part.getAttribute("href") ?? part.closest("form")?.action ?? part.textContent;

  let stream;
  const follow = () => {
    stream?.close();
    if (live === undefined || document.visibilityState !== "visible") return;
    stream = new EventSource(`${root}live?at=${encodeURIComponent(at + location.search)}`);
    stream.onopen = () => say("Live.");
    stream.onerror = () => say("Not live: the server cannot be reached; trying again.");
    stream.onmessage = (event) => {
      for (const [name, html] of Object.entries(JSON.parse(event.data))) replace(name, html);
    };
    stream.addEventListener("end", (event) => { stream.close(); say(event.data); });
  };

  const filters = document.querySelector("form.filters");
  let timer;
  filters?.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const fields = new URLSearchParams([...new FormData(filters)].filter(([, value]) => value));
      history.replaceState(null, "", `?${fields}`);
      if (live === undefined) location.reload(); else follow();
    }, 250);
  });

  for (const part of document.querySelectorAll(".js")) part.hidden = false;
  improve(document);
  document.addEventListener("visibilitychange", follow);
  follow();
})();
