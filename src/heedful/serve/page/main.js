// Starts the page: choice of the model, theme, keyboard shortcuts.

import { byId, h, say } from "./common.js";
import { translating } from "./translate.js";
import { writing } from "./write.js";
import { filling } from "./fill.js";
import { transcribing } from "./transcribe.js";
import { summarizing } from "./summarize.js";

const views = { translate: translating, write: writing, fill: filling, inspect: filling, transcribe: transcribing, summarize: summarizing };
let models = [],
  settings = {},
  view = null;

function label(model) {
  const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
  const name = (code) => {
    try {
      return names.of(code.replace("_", "-"));
    } catch {
      return code;
    }
  };
  const what = { translate: () => `${name(model.source)} → ${name(model.target)}`, write: () => "Write", fill: () => "Fill in", inspect: () => "Look inside", transcribe: () => "Transcribe", summarize: () => "Summarize" };
  const title = what[model.task]();
  return models.length > 1 || model.task !== "translate" ? `${title} · ${model.name}` : title;
}

function show(name, carried = "") {
  const model = models.find((candidate) => candidate.name === name) || models[0];
  view?.leave?.();
  byId("model").value = model.name;
  try {
    history.replaceState(null, "", `#${encodeURIComponent(model.name)}`);
  } catch {
    /* some frames do not allow it */
  }
  say("");
  view = views[model.task]({ model, models, settings, carried, show, label });
  byId("view").replaceChildren(view.element);
  view.begin?.();
}

// ---- light and dark

const wishes = ["auto", "light", "dark"];
let wish = wishes.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto";
function applyTheme() {
  const night = wish === "dark" || (wish === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = night ? "dark" : "light";
  byId("theme").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[wish];
}
byId("theme").addEventListener("click", () => {
  wish = wishes[(wishes.indexOf(wish) + 1) % wishes.length];
  localStorage.setItem("theme", wish);
  applyTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);

// ---- keys

const common = [
  ["Alt+M", "choose a model"],
  ["Alt+K", "this list"],
];
function openHelp() {
  byId("dialog").replaceChildren(
    h("h2", {}, "Keyboard shortcuts"),
    h(
      "dl",
      {},
      [...(view?.keys || []), ...common].map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)]),
    ),
    h("form", { method: "dialog" }, h("button", {}, "Close")),
  );
  byId("dialog").showModal();
}
document.addEventListener("keydown", (event) => {
  if (byId("dialog").open) return;
  if (event.altKey && event.code === "KeyK") openHelp();
  else if (event.altKey && event.code === "KeyM") byId("model").focus();
  else if (!view?.onKey?.(event)) return;
  event.preventDefault();
});
byId("keys").addEventListener("click", openHelp);
byId("model").addEventListener("change", (event) => show(event.target.value));

async function open() {
  applyTheme();
  try {
    [models, settings] = await Promise.all(
      ["/models", "/frontend/settings"].map(async (path) => (await fetch(path)).json()),
    );
  } catch {
    say("The server does not answer; is it still running?", true);
    return;
  }
  if (models.some((model) => model.task === "loading")) {
    byId("view").replaceChildren(h("p", { class: "wait" }, "The models are being loaded…"));
    setTimeout(open, 1000);
    return;
  }
  byId("model").replaceChildren(...models.map((model) => h("option", { value: model.name }, label(model))));
  byId("model").disabled = models.length < 2;
  show(requestedModel());
  document.documentElement.dataset.ready = "yes";
}
function requestedModel() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // the fragment is not a model name
  }
}
open();
