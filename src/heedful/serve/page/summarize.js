// Summaries: a document becomes a short text.

import { copy, h, post, say, sayWhy } from "./common.js";

export function summarizing({ model, carried }) {
  let abort = null;
  const area = h("textarea", { id: "text", "aria-label": "Document", placeholder: "Write or paste a document", spellcheck: false });
  const output = h("textarea", { id: "summary", "aria-label": "Summary", readonly: true, "aria-live": "polite", placeholder: "The summary appears here" });
  const element = h("div", {},
    h("div", { class: "page" },
      h("div", { class: "head" }, h("strong", {}, model.name),
        h("button", { type: "button", class: "main", id: "summarize", title: "Ctrl+Enter", onclick: summarize }, "Summarize")),
      area),
    h("div", { class: "page short" },
      h("div", { class: "head" }, h("strong", {}, "Summary"),
        h("button", { type: "button", onclick: () => copy(output.value) }, "Copy")),
      output));

  async function summarize() {
    const text = area.value.replace(/\s+/g, " ").trim();
    abort?.abort();
    if (!text) return;
    abort = new AbortController();
    say("Summarizing…");
    try {
      const answer = await (await post("/v1/summaries", { model: model.name, text }, abort.signal)).json();
      output.value = answer.summaries[0];
      say(answer.warnings[0].map((warning) => `Note: ${warning}.`).join(" "));
    } catch (error) {
      if (error.name !== "AbortError") sayWhy(error);
    }
  }
  return {
    element,
    keys: [["Ctrl+Enter", "summarize"]],
    onKey(event) {
      if (!((event.ctrlKey || event.metaKey) && event.key === "Enter")) return false;
      summarize();
      return true;
    },
    begin() { area.value = carried || ""; area.focus(); },
    leave() { abort?.abort(); },
  };
}
