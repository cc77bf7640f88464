// Opening the page, changing views, keys, light and dark, and an address for every state.

const element = (id) => document.getElementById(id);
const shownViews = () => Object.keys(order()).filter((name) => views[name].has());
const order = () => ({ ...(data.sound ? { sound: 1 } : {}), ...(data.hops ? { hops: 1 } : {}), overview: 1, heads: 1, steps: 1, ...(data.experts ? { experts: 1 } : {}), decoding: 1, alignment: 1, positions: 1 });

function render() {
  const main = element("view"),
    focused = focusPath();
  if (!shownViews().includes(state.view)) state.view = shownViews()[0];
  for (const tab of element("tabs").children) {
    const chosen = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (!chosen) continue;
    main.setAttribute("aria-labelledby", tab.id);
    element("tabs").scrollLeft = tab.offsetLeft - (element("tabs").clientWidth - tab.offsetWidth) / 2;
  }
  sizes.disconnect();
  main.replaceChildren();
  views[state.view].show(main);
  remembered();
  refocus(focused);
}

// The address says what is shown, so that a link to this file can point at a head or a step.
function remembered() {
  const parts = [
    state.view,
    state.attention,
    state.layer,
    state.heads.join("+"),
    state.token,
    state.words ? "words" : "pieces",
  ];
  try {
    history.replaceState(null, "", `#${parts.join("/")}`);
  } catch {
    /* some readers of files do not allow it */
  }
}
function recall() {
  const [view, index, layer, heads, token, words] = decodeURIComponent(location.hash.slice(1)).split("/");
  const clampedIndex = (text, most) => {
    const n = Number.parseInt(text, 10);
    return n >= 0 && n < most ? n : 0;
  };
  if (Object.hasOwn(views, view)) state.view = view;
  if (index === undefined) return;
  state.attention = clampedIndex(index, data.attentions.length);
  const [layers, count, rows] = attention().shape;
  state.layer = clampedIndex(layer, layers);
  state.heads = [...new Set((heads || "0").split("+").map((text) => clampedIndex(text, count)))];
  state.several = state.heads.length > 1;
  state.token = clampedIndex(token, rows);
  state.words = words === "words";
}

// After a view is drawn anew the focus is where it was.
function focusPath() {
  const active = document.activeElement,
    main = element("view");
  if (!main.contains(active)) return null;
  const label = active.getAttribute("aria-label") || active.textContent,
    group = active.closest("[aria-label]");
  return {
    id: active.id,
    label,
    tag: active.tagName,
    group: group && group !== active ? group.getAttribute("aria-label") : null,
  };
}
function refocus(path) {
  if (!path) return;
  const again = path.id
    ? element(path.id)
    : [...element("view").querySelectorAll(path.tag)].find(
        (control) =>
          (control.getAttribute("aria-label") || control.textContent) === path.label &&
          (!path.group || control.closest(`[aria-label="${CSS.escape(path.group)}"]`)),
      );
  const pressed =
    path.group && element("view").querySelector(`[aria-label="${CSS.escape(path.group)}"] [aria-pressed="true"]`);
  (pressed || again)?.focus({ preventScroll: true });
}

// ---- light and dark

const wishes = ["auto", "light", "dark"];
let wish = "auto";
function applyTheme() {
  const night = wish === "dark" || (wish === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = night ? "dark" : "light";
  document.documentElement.style.colorScheme = night ? "dark" : "light";
  element("theme").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[wish];
  if (data) render();
}
function nextTheme() {
  wish = wishes[(wishes.indexOf(wish) + 1) % wishes.length];
  applyTheme();
}

// ---- keys

const keyHelp = [
  ["1 … 9", "views"],
  ["← → ↑ ↓", "to the next word, map or token, once one has the focus"],
  ["j  k", "next and previous token"],
  ["]  [", "next and previous layer"],
  ["n  p", "next and previous head"],
  ["a", "next kind of attention"],
  ["w", "pieces or words"],
  ["d", "light or dark"],
  ["?", "this list"],
];
function openHelp() {
  element("help").replaceChildren(
    h("h2", {}, "Keyboard shortcuts"),
    h(
      "dl",
      {},
      keyHelp.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)]),
    ),
    h("form", { method: "dialog" }, h("button", {}, "Close")),
  );
  element("help").showModal();
}
function move(step, tokens) {
  const token = Math.min(Math.max(state.token + step, 0), tokens - 1);
  if (token !== state.token && ["heads", "steps", "alignment", "sound"].includes(state.view)) change({ token });
}
function onKey(event) {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    element("help").open ||
    (["INPUT", "SELECT"].includes(event.target.tagName) && event.target.type !== "checkbox")
  )
    return;
  const turn = (value, step, count) => (value + step + count) % count,
    [layers, heads] = attention().shape;
  const tokens = state.view === "alignment" ? data.alignment.targetWords.length : labels(attention().rows).length;
  const actions = {
    j: () => move(1, tokens),
    k: () => move(-1, tokens),
    "]": () => change({ layer: turn(state.layer, 1, layers) }),
    "[": () => change({ layer: turn(state.layer, -1, layers) }),
    n: () => change({ several: false, heads: [turn(state.heads[0], 1, heads)] }),
    p: () => change({ several: false, heads: [turn(state.heads[0], -1, heads)] }),
    a: () => change({ attention: turn(state.attention, 1, data.attentions.length), token: 0, layer: 0 }),
    w: () => change({ words: !state.words, token: 0 }),
    d: nextTheme,
    "?": openHelp,
  };
  const view = shownViews()[Number(event.key) - 1];
  if (view) change({ view });
  else if (Object.hasOwn(actions, event.key)) actions[event.key]();
  else return;
  event.preventDefault();
}

// ---- opening

function header() {
  const { model } = data,
    long = data.text.length > 220;
  element("sentence").append(h("bdi", { class: long ? "long" : "" }, data.text));
  if (data.output && data.sides.source)
    element("sentence").append(
      h("span", { class: "arrow", "aria-label": "becomes" }, "→"),
      h("bdi", { class: long ? "out long" : "out" }, data.output),
    );
  if (data.output && !data.sides.source)
    element("sentence").lastChild.append(h("span", { class: "out" }, data.output));
  const facts = [
    ["model", model.name],
    ["family", model.family],
    ["layers", model.layers.join(" + ")],
    ["heads", model.heads],
    ["width", model.dModel],
    ["vocabulary", model.vocabulary.toLocaleString("en")],
    ["parameters", model.parameters.toLocaleString("en")],
    ["experts", model.experts],
    ["norm", model.norm],
    ["positions", model.positions],
  ];
  element("card").append(
    ...facts.filter(([, value]) => value !== null).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value)))),
  );
  element("note").textContent = data.note;
  element("note").hidden = !data.note;
}
function tabs() {
  const bar = element("tabs");
  bar.append(
    ...shownViews().map((name) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "data-view": name,
          "aria-controls": "view",
          onclick: () => change({ view: name }),
        },
        views[name].title,
      ),
    ),
  );
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key],
      names = shownViews();
    if (!step) return;
    const name = names[(names.indexOf(state.view) + step + names.length) % names.length];
    change({ view: name });
    element(`tab-${name}`).focus();
  });
}

async function open() {
  applyTheme();
  try {
    data = await unpack(element("data").textContent);
  } catch (error) {
    element("view").replaceChildren(
      h(
        "p",
        { class: "wait" },
        `This page could not be opened here (${error.message}). A browser of 2023 or later can.`,
      ),
    );
    return;
  }
  header();
  tabs();
  state.view = shownViews()[0];
  recall();
  element("theme").addEventListener("click", nextTheme);
  element("keys").addEventListener("click", openHelp);
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", () => {
    recall();
    render();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  render();
  document.documentElement.dataset.ready = "yes";
}
open();
