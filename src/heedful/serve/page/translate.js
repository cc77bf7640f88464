// Translates while the user types: sentence by sentence, with alternatives and highlighted word alignments.

import { HttpError, copy, h, look, post, save, say, sayWhy } from "./common.js";
import { translateDocument, translateFile } from "./files.js";

const WAYS = 4;
// as in Python: in scripts without spaces every character is a word
const WORD = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\u{20000}-\u{3ffff}][\u0300-\u036f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b6-\u17d3\u3099\u309a\ufe00-\ufe0f]*|[^\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\u{20000}-\u{3ffff}]+/gu;
const DOUBTFUL = [[0.4, "doubtful"], [0.65, "unsure"]]; // confidence of a word below which it is shaded
const WITHOUT_SPACES = /[\u0e00-\u0eff\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]$/; // scripts

export function translating({ model, models, settings, carried, show, label }) {
  const reverse = models.find((other) => other.source === model.target && other.target === model.source);
  const [from, to] = label({ ...model }).split(" · ")[0].split(" → ");
  const beam = Math.max(WAYS, model.beam); // of alternatives and of alignments, which are those of the same translations
  let sentences = [], // of the text that is shown: source, start, end, translations, chosen
    active = 0,
    requested = 0,
    answered = 0,
    timer = 0,
    abort = null;

  const input = h("textarea", {
    id: "source", "aria-label": `Text in ${from}`, placeholder: "Type, paste, or drop a file", spellcheck: false,
    autocapitalize: "sentences", dir: "auto", lang: model.source.length <= 3 ? model.source : null,
    oninput: typed, onscroll: () => (input.scrollTop = 0),
    onmousemove: (event) => pointed(event), onmouseleave: () => light(null),
  });
  const mirror = h("div", { class: "mirror", dir: "auto", "aria-hidden": true });
  const glossary = h("textarea", {
    id: "glossary", rows: 3, spellcheck: false, "aria-label": "Glossary", placeholder: "dog = Hund | Hunde\nheedful =", oninput: typed,
  });
  const output = h("div", {
    class: "output", id: "target", dir: "auto", "aria-label": `Translation into ${to}`, lang: model.target.length <= 3 ? model.target : null,
    onmouseleave: () => light(null),
  });
  const count = h("span", { class: "count" });
  const file = h("input", {
    type: "file", id: "file", class: "hidden", tabindex: -1, accept: [...settings.supportedFilesFormat, "text/*"].join(","), "aria-label": "File to translate",
    onchange: () => opened(file.files[0]),
  });
  const swapButton = h("button", {
    type: "button", id: "swap", title: reverse ? "Swap languages (Alt+S)" : "No model for the other direction is loaded",
    disabled: !reverse, onclick: swap,
  }, "⇄ Swap");
  const alternatives = h("section", { class: "ways", "aria-label": "Other translations" });
  const element = h("div", {},
    h("div", { class: "sides" },
      h("section", { class: "side" },
        h("div", { class: "head" }, h("strong", {}, from), swapButton,
          h("button", { type: "button", id: "open", onclick: () => file.click() }, "Open file"), file),
        h("div", { class: "box" }, mirror, input),
        h("div", { class: "foot" }, count,
          h("button", { type: "button", id: "clear", onclick: clear }, "Clear"))),
      h("section", { class: "side" },
        h("div", { class: "head" }, h("strong", {}, to),
          h("button", { type: "button", id: "copy", title: "Alt+C", onclick: () => copy(fullTranslation()) }, "Copy"),
          h("button", { type: "button", id: "save", onclick: () => save(`translation.${model.target}.txt`, fullTranslation()) }, "Save")),
        output,
        h("p", { class: "foot" }, "Point at a word to see where it comes from; click a sentence to look inside. Doubtful words are shaded red."))),
    h("details", { class: "glossary" },
      h("summary", {}, "Glossary"),
      h("p", { class: "small" }, "A line is a term = its translation, or several forms separated by |; nothing after = keeps the term as it is."),
      glossary),
    alternatives);
  element.addEventListener("dragover", (event) => { event.preventDefault(); element.classList.add("dropping"); });
  element.addEventListener("dragleave", () => element.classList.remove("dropping"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    element.classList.remove("dropping");
    opened(event.dataTransfer.files[0]);
  });

  // ---- typing

  function typed() {
    count.textContent = `${input.value.length.toLocaleString("en")} / ${settings.charLimit.toLocaleString("en")}`;
    drawMirror(false);
    output.classList.add("old");
    clearTimeout(timer);
    timer = setTimeout(translate, input.value.trim() ? settings.frontendTimeout : 0);
  }

  async function translate(again = 0) {
    clearTimeout(timer);
    abort?.abort();
    const text = input.value, number = ++requested;
    if (!text.trim()) return shown([], number);
    abort = new AbortController();
    say("Translating…");
    try {
      const body = { text, model: model.name, n_best: WAYS, beam, glossary: terms(), confidence: true };
      const answer = await post("/v1/translations", body, abort.signal);
      const received = (await answer.json()).translations[0].sentences;
      if (!shown(received, number)) return;
      say("");
      await align({ text }, number, abort.signal);
    } catch (error) {
      if (error.name === "AbortError" || number < requested) return;
      if (error instanceof HttpError && error.status === 503 && again < 5) {
        say(`${error.message} Trying again…`, true);
        timer = setTimeout(() => translate(again + 1), 1000 * Math.max(1, error.after));
      } else sayWhy(error);
    }
  }

  // Alignments are requested after the translation, because they take longer.
  async function align(body, number, signal, first = 0) {
    const answer = await post("/v1/translations", { model: model.name, alignments: true, beam, glossary: terms(), ...body }, signal);
    if (number < answered) return;
    for (const [index, aligned] of (await answer.json()).translations[0].sentences.entries())
      for (const translation of sentences[first + index]?.translations || [])
        if (translation.text === aligned.translations[0]?.text) translation.alignment = aligned.translations[0].alignment;
    output.dataset.aligned = answered;
  }

  // A response is shown unless the response to a later request has been.
  function shown(received, number) {
    if (number < answered) return false;
    answered = number;
    sentences = received.map((sentence) => ({ ...sentence, chosen: 0 }));
    active = Math.min(active, Math.max(0, sentences.length - 1));
    output.classList.remove("old");
    drawMirror(true);
    drawOutput();
    drawWays();
    return true;
  }

  // ---- what is shown

  function terms() {
    const lines = glossary.value.split("\n").filter((line) => line.includes("=")).map((line) => line.split("=").map((cell) => cell.trim()));
    return Object.fromEntries(lines.filter(([term]) => term).map(([term, forms]) =>
      [term, forms ? forms.split("|").map((form) => form.trim()).filter(Boolean) : null]));
  }
  function words(text, sentence, side, confidence = []) {
    const parts = [];
    let at = 0, number = 0;
    for (const match of text.matchAll(WORD)) {
      const value = confidence[number];
      const shade = value === undefined ? "" : DOUBTFUL.find(([limit]) => value < limit)?.[1] || "";
      parts.push(text.slice(at, match.index), h("span", {
        class: `word ${shade}`.trim(), "data-sentence": sentence, "data-word": number, "data-side": side,
        title: shade ? `confidence ${Math.round(100 * value)} %` : null,
      }, match[0]));
      at = match.index + match[0].length;
      number += 1;
    }
    return [...parts, text.slice(at)];
  }
  function drawMirror(current) {
    const text = input.value;
    if (!current) return mirror.replaceChildren(`${text}\n`);
    const parts = [];
    let at = 0;
    // offsets count code points, as in Python
    const characters = Array.from(text);
    const slice = (start, end) => characters.slice(start, end).join("");
    sentences.forEach((sentence, index) => {
      parts.push(slice(at, sentence.start), words(sentence.source, index, "source"));
      at = sentence.end;
    });
    mirror.replaceChildren(...parts.flat(), `${slice(at)}\n`);
  }
  const chosenTranslation = (sentence) => sentence.translations[sentence.chosen] || { text: "", alignment: [] };
  // The white space before each sentence of the translation: that of the source, or a space if the source script has none.
  function gaps() {
    const characters = Array.from(input.value);
    let text = "", at = 0;
    const spaces = sentences.map((sentence) => {
      const between = characters.slice(at, sentence.start).join(""), translated = chosenTranslation(sentence).text;
      const gap = between || (text && translated && !WITHOUT_SPACES.test(text) ? " " : "");
      text += gap + translated;
      at = sentence.end;
      return gap;
    });
    return [spaces, characters.slice(at).join("")];
  }
  function fullTranslation() {
    const [spaces, rest] = gaps();
    return sentences.map((sentence, index) => spaces[index] + chosenTranslation(sentence).text).join("") + rest;
  }
  function drawOutput() {
    const [spaces] = gaps(), parts = [];
    sentences.forEach((sentence, index) => {
      parts.push(spaces[index]);
      parts.push(h("span", {
        class: `sentence${index === active && sentences.length > 1 ? " active" : ""}`, tabindex: 0, role: "button", "data-sentence": index,
        title: "Look inside", onclick: () => inside(index), onfocus: () => activate(index), onmouseenter: () => activate(index),
        onmousemove: pointed, onkeydown: (event) => { if (event.key === "Enter") inside(index); },
      }, words(chosenTranslation(sentence).text, index, "target", chosenTranslation(sentence).word_confidence || [])));
    });
    output.replaceChildren(...parts);
  }
  function inside(index) {
    if (!getSelection().isCollapsed) return; // the user is selecting text
    look(model.name, sentences[index].source, chosenTranslation(sentences[index]).text);
  }
  function activate(index) {
    if (index === active) return;
    active = index;
    for (const span of output.querySelectorAll(".sentence")) span.classList.toggle("active", Number(span.dataset.sentence) === index);
    drawWays();
  }
  function drawWays() {
    const sentence = sentences[active];
    if (!sentence || sentence.translations.length < 2) return alternatives.replaceChildren();
    const step = (by) => { activate((active + by + sentences.length) % sentences.length); };
    alternatives.replaceChildren(
      h("div", { class: "row" }, h("h3", {}, "Other translations"),
        sentences.length > 1 && h("span", { class: "stepper" },
          h("button", { type: "button", "aria-label": "Previous sentence", onclick: () => step(-1) }, "‹"),
          h("span", { class: "small" }, `sentence ${active + 1} of ${sentences.length}`),
          h("button", { type: "button", "aria-label": "Next sentence", onclick: () => step(1) }, "›"))),
      h("ol", {}, sentence.translations.map((translation, rank) => h("li", {},
        h("button", { type: "button", dir: "auto", "aria-pressed": String(rank === sentence.chosen), onclick: () => choose(rank) },
          h("span", {}, translation.text), h("span", { class: "figure", dir: "ltr", title: "log-probability, divided by the length penalty" }, translation.score.toFixed(2)))))));
  }
  function choose(rank) {
    const sentence = sentences[active];
    sentence.chosen = rank;
    if (!chosenTranslation(sentence).alignment) align({ text: sentence.source, prefix: chosenTranslation(sentence).text }, answered, undefined, active).catch(() => {});
    drawOutput();
    drawWays();
    alternatives.querySelectorAll("li button")[rank].focus();
  }

  // ---- pointing

  function pointed(event) {
    const under = document.elementsFromPoint(event.clientX, event.clientY).find((target) => target.classList.contains("word"));
    light(under || null);
  }
  function light(word) {
    for (const lit of element.querySelectorAll(".lit")) lit.classList.remove("lit");
    if (!word) return;
    const { sentence, side } = word.dataset, number = Number(word.dataset.word), translated = sentences[sentence];
    if (!translated) return;
    const other = side === "source" ? "target" : "source";
    const linked = (chosenTranslation(translated).alignment || [])
      .filter(([source, target]) => (side === "source" ? source : target) === number)
      .map(([source, target]) => (side === "source" ? target : source));
    word.classList.add("lit");
    for (const index of linked)
      element.querySelector(`.word[data-side="${other}"][data-sentence="${sentence}"][data-word="${index}"]`)?.classList.add("lit");
  }

  // ---- swapping, clearing, files

  function swap() { if (reverse) show(reverse.name, fullTranslation() || input.value); }
  function clear() { input.value = ""; typed(); input.focus(); }
  async function opened(chosen) {
    if (!chosen) return;
    file.value = "";
    const html = /\.html?$/i.test(chosen.name), kind = (/\.\w+$/.exec(chosen.name) || [""])[0].toLowerCase();
    if (!html && kind !== ".txt" && settings.supportedFilesFormat.includes(kind)) {
      alternatives.replaceChildren(h("h3", {}, `Translating ${chosen.name}…`));
      await saved(chosen, async () => save(targetName(chosen), await translateDocument(chosen, model, terms()), "application/octet-stream"));
      return;
    }
    const text = await chosen.text();
    if (!html && text.length <= settings.charLimit) {
      input.value = text;
      typed();
      return;
    }
    const bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the file" });
    alternatives.replaceChildren(h("h3", {}, `Translating ${chosen.name}…`), bar);
    await saved(chosen, async () => {
      const translated = await translateFile(text, html, model, terms(), settings, (share) => (bar.value = share));
      save(targetName(chosen), translated, html ? "text/html" : "text/plain");
    });
  }
  const targetName = (chosen) => chosen.name.replace(/(\.\w+)?$/, `.${model.target}$1`);
  async function saved(chosen, work) {
    try {
      await work();
      alternatives.replaceChildren(h("p", {}, `${chosen.name} is translated and saved.`));
    } catch (error) {
      alternatives.replaceChildren();
      say(`${chosen.name} could not be translated: ${error.message}`, true);
    }
  }

  return {
    element,
    keys: [["Ctrl+Enter", "translate now"], ["Alt+S", "swap languages"], ["Alt+C", "copy the translation"],
      ["Tab, Enter", "go to a sentence of the translation and look inside"]],
    onKey(event) {
      if ((event.ctrlKey || event.metaKey) && event.key === "Enter") translate();
      else if (event.altKey && event.code === "KeyS") swap();
      else if (event.altKey && event.code === "KeyC") copy(fullTranslation());
      else return false;
      return true;
    },
    begin() {
      input.value = carried;
      typed();
      if (carried) translate();
      input.focus();
    },
    leave() { clearTimeout(timer); abort?.abort(); },
  };
}
