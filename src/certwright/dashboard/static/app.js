"use strict";
// While the page is visible, its blocks are replaced by those that the server sends.
(() => {
  const { root, at } = document.body.dataset;
  let stream;
  const open = () => {
    stream = new EventSource(`${root}live?at=${encodeURIComponent(at + location.search)}`);
    stream.onmessage = (event) => {
      for (const [name, html] of Object.entries(JSON.parse(event.data))) {
        const block = document.getElementById(name);
        if (block && block.innerHTML !== html) block.innerHTML = html;
      }
    };
    stream.addEventListener("end", () => stream.close());
  };
  const follow = () => {
    if (stream) stream.close();
    if (document.visibilityState === "visible") open();
  };
  document.addEventListener("visibilitychange", follow);
  if (document.body.dataset.live !== undefined) follow();
})();
