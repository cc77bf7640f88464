// Fill-mask: the most probable words for each [MASK] of a text. Of other encoders (classifiers): the look inside.

import { h, look, post, say, sayWhy } from "./common.js";

const BLANK = "[MASK]";

export function filling({ model, settings }) {
  let requested = 0, answered = 0, timer = 0, abort = null;
  const fills = model.task === "fill";
  const hint = fills ? `Write ${BLANK} in place of a missing word.` : "This model fills no masks; look inside to see its attention.";
  const area = h("textarea", { id: "text", "aria-label": fills ? `Text with ${BLANK} in place of missing words` : "Text", spellcheck: false, oninput: typed });
  const blanks = h("div", { class: "blanks", "aria-live": "polite" });
  const element = h("div", {},
    h("div", { class: "page short" },
      h("div", { class: "head" }, h("strong", {}, model.name),
        fills && h("button", { type: "button", id: "blank", title: "Alt+B", onclick: insert }, "Insert a mask"),
        h("button", { type: "button", id: "inside", onclick: () => area.value.trim() && look(model.name, area.value) }, "Look inside")),
      area),
    h("p", { class: "small" }, hint), blanks);

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
    if (!fills || !/\[MASK\]|<mask>/.test(text)) { answered = number; say(""); return blanks.replaceChildren(); }
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
      if (error.name !== "AbortError") sayWhy(error);
    }
  }
  return {
    element,
    keys: fills ? [["Alt+B", "insert a mask"], ["Ctrl+Enter", "predict now"]] : [],
    onKey(event) {
      if ((event.ctrlKey || event.metaKey) && event.key === "Enter") fill();
      else if (fills && event.altKey && event.code === "KeyB") insert();
      else return false;
      return true;
    },
    begin() { area.focus(); },
    leave() { clearTimeout(timer); abort?.abort(); },
  };
}
