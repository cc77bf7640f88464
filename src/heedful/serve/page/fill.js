// Fill-mask: the most probable words for each [MASK] of a text.

import { HttpError, h, look, post, say } from "./common.js";

const BLANK = "[MASK]";

export function filling({ model, settings }) {
  let requested = 0, answered = 0, timer = 0, abort = null;
  const area = h("textarea", { id: "text", "aria-label": `Text with ${BLANK} in place of missing words`, spellcheck: false, oninput: typed });
  const blanks = h("div", { class: "blanks", "aria-live": "polite" });
  const element = h("div", {},
    h("div", { class: "page short" },
      h("div", { class: "head" }, h("strong", {}, model.name),
        h("button", { type: "button", id: "blank", title: "Alt+B", onclick: insert }, "Insert a mask"),
        h("button", { type: "button", id: "inside", onclick: () => area.value.trim() && look(model.name, area.value) }, "Look inside")),
      area),
    h("p", { class: "small" }, `Write ${BLANK} in place of a missing word.`), blanks);

  function insert() {
    area.setRangeText(BLANK, area.selectionStart, area.selectionEnd, "end");
    typed();
    area.focus();
  }
  function typed() {
    clearTimeout(timer);
    timer = setTimeout(fill, settings.frontendTimeout);
  }
  async function fill() {
    abort?.abort();
    const number = ++requested, text = area.value;
    if (!/\[MASK\]|<mask>/.test(text)) { answered = number; say(""); return blanks.replaceChildren(); }
    abort = new AbortController();
    try {
      const blankCandidates = (await (await post("/v1/fill", { model: model.name, text, top: 8 }, abort.signal)).json()).blanks;
      if (number < answered) return;
      answered = number;
      say("");
      blanks.replaceChildren(...blankCandidates.map((candidates, index) => h("section", { class: "blank" },
        h("h3", {}, blankCandidates.length > 1 ? `Mask ${index + 1}` : "Candidates"),
        candidates.map((candidate) => h("button", { type: "button", onclick: () => { area.value = candidate.text; fill(); area.focus(); } },
          h("bdi", {}, candidate.token), h("meter", { min: 0, max: 1, value: candidate.probability }),
          h("span", { class: "figure" }, `${(100 * candidate.probability).toFixed(1)} %`))))));
    } catch (error) {
      if (error.name !== "AbortError") say(error instanceof HttpError ? error.message : "The server does not answer; is it still running?", true);
    }
  }
  return {
    element,
    keys: [["Alt+B", "insert a mask"], ["Ctrl+Enter", "predict now"]],
    onKey(event) {
      if ((event.ctrlKey || event.metaKey) && event.key === "Enter") fill();
      else if (event.altKey && event.code === "KeyB") insert();
      else return false;
      return true;
    },
    begin() { area.focus(); },
    leave() { clearTimeout(timer); abort?.abort(); },
  };
}
