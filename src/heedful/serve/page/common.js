// Shared by all views: elements, requests to the server, the status line, files, the explain page.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(5).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

export function say(text, bad = false) {
  const line = byId("status");
  line.textContent = text;
  line.classList.toggle("bad", bad);
}

// ---- the server

let key = sessionStorage.getItem("key") || "";
const authorization = () => (key ? { authorization: `Bearer ${key}` } : {});

export class HttpError extends Error {
  constructor(status, message, after) {
    super(message);
    this.status = status;
    this.after = after;
  }
}

export const post = (path, body, signal) =>
  send(path, JSON.stringify(body), signal, { "content-type": "application/json" });

// A body that is JSON already, or a form; the browser knows the content type of a form.
export async function send(path, body, signal, headers = {}) {
  const answer = await fetch(path, { method: "POST", headers: { ...headers, ...authorization() }, body, signal });
  if (answer.ok) return answer;
  if (answer.status === 401 && (await askForKey())) return send(path, body, signal, headers);
  let message = `The server answered ${answer.status}.`;
  try {
    const { error } = await answer.json();
    message = typeof error === "string" ? error : error.message;
  } catch {
    /* it was not JSON */
  }
  throw new HttpError(answer.status, message, Number(answer.headers.get("retry-after")) || 0);
}

// The events of a streamed answer, one by one; an error among them is thrown.
export async function* streamed(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new HttpError(503, event.error.message, 0);
      yield event;
    }
  }
}

// Why a stream ended early.
export function sayWhy(error) {
  if (error.name === "AbortError") say("Stopped.");
  else say(error instanceof HttpError ? error.message : "The server does not answer; is it still running?", true);
}

let asking = null;
function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = byId("dialog"),
      input = h("input", { type: "password", autocomplete: "off", required: true, "aria-label": "API key" });
    dialog.replaceChildren(
      h("h2", {}, "API key required"),
      h("p", {}, "This server requires an API key. It is kept until this tab is closed."),
      h("form", { method: "dialog" }, input, " ", h("button", { class: "main", value: "yes" }, "Continue")),
    );
    dialog.returnValue = "";
    dialog.addEventListener(
      "close",
      () => {
        asking = null;
        key = dialog.returnValue === "yes" ? input.value : "";
        sessionStorage.setItem("key", key);
        resolve(Boolean(key));
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}

// ---- files and the clipboard

export function save(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied.");
}

// ---- the explain page: opened by a form in a new tab, so that the text is not part of a URL

export function look(model, text, target) {
  const fields = { model, text, ...(target ? { target } : {}), ...(key ? { api_key: key } : {}) };
  const form = h(
    "form",
    { method: "post", action: "/inside", target: "_blank", class: "hidden" },
    Object.entries(fields).map(([name, value]) => {
      const area = h("textarea", { name });
      area.value = value;
      return area;
    }),
  );
  document.body.append(form);
  form.submit();
  form.remove();
}
