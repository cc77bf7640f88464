// Text generation with a GPT: continues the text and shows the output as it is streamed.

import { copy, h, look, post, save, say, sayWhy, streamed } from "./common.js";

const SETTINGS = [
  ["temperature", "Temperature", { type: "range", min: 0, max: 2, step: 0.05, value: 0.8 }],
  ["top_p", "Top-p", { type: "range", min: 0.05, max: 1, step: 0.05, value: 0.95 }],
  ["top_k", "Top-k, 0 for all", { type: "number", min: 0, max: 1000, step: 1, value: 0 }],
  ["repetition_penalty", "Repetition penalty", { type: "range", min: 1, max: 2, step: 0.05, value: 1 }],
  ["max_tokens", "Maximum tokens", { type: "number", min: 1, max: 4096, step: 1, value: 120 }],
  ["seed", "Seed, empty for random", { type: "number", min: 0, step: 1, value: "" }],
  ["stop", "Stop before", { type: "text", value: "", placeholder: "nothing" }],
];

export function writing({ model }) {
  let abort = null, before = "";
  const area = h("textarea", { id: "text", "aria-label": "Text", placeholder: "Start a text and let the model continue", spellcheck: false });
  const inputs = Object.fromEntries(SETTINGS.map(([name, , props]) => [name, h("input", { id: name, ...props })]));
  const go = h("button", { type: "button", class: "main", id: "go", onclick: () => (abort ? stop() : write()) }, "Write");
  const again = h("button", { type: "button", id: "again", disabled: true, onclick: () => { area.value = before; write(); } }, "Retry");
  const controls = h("div", { class: "controls" }, SETTINGS.map(([name, title, props]) => {
    const figure = h("output", {}, props.type === "range" ? String(props.value) : "");
    inputs[name].addEventListener("input", () => { if (props.type === "range") figure.textContent = inputs[name].value; });
    return h("label", {}, h("span", {}, title, figure), inputs[name]);
  }));
  const element = h("div", {},
    h("div", { class: "page" },
      h("div", { class: "head" }, h("strong", {}, model.name), go, again,
        h("button", { type: "button", onclick: () => copy(area.value) }, "Copy"),
        h("button", { type: "button", onclick: () => save("text.txt", area.value) }, "Save"),
        h("button", { type: "button", id: "inside", onclick: () => area.value.trim() && look(model.name, area.value.slice(-1500)) }, "Look inside")),
      area),
    controls);

  function asked() {
    const body = { model: model.name, prompt: area.value, stream: true };
    for (const [name] of SETTINGS) if (inputs[name].value !== "") body[name] = name === "stop" ? inputs[name].value : Number(inputs[name].value);
    return body;
  }
  async function write() {
    abort = new AbortController();
    before = area.value;
    go.textContent = "Stop";
    say("Writing…");
    try {
      const answer = await post("/v1/completions", asked(), abort.signal);
      for await (const event of streamed(answer)) add(event.choices.map((choice) => choice.text).join(""));
      say("");
    } catch (error) {
      sayWhy(error);
    }
    abort = null;
    again.disabled = false;
    go.textContent = "Write";
  }
  function add(text) {
    const below = area.scrollTop + area.clientHeight >= area.scrollHeight - 4;
    area.value += text;
    if (below) area.scrollTop = area.scrollHeight;
  }
  function stop() { abort?.abort(); }

  return {
    element,
    keys: [["Ctrl+Enter", "write, or stop"], ["Esc", "stop"]],
    onKey(event) {
      if ((event.ctrlKey || event.metaKey) && event.key === "Enter") go.click();
      else if (event.key === "Escape" && abort) stop();
      else return false;
      return true;
    },
    begin() { area.focus(); },
    leave: stop,
  };
}
