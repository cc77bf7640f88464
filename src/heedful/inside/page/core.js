// What every view uses: the state of the page, elements, colors, maps, numbers as text.

let data = null;
const views = {}; // name -> { title, key, show(main), has() }
const state = {
  view: "overview",
  attention: 0,
  layer: 0,
  heads: [0],
  token: 0,
  words: false,
  several: false,
  losers: true,
};

// ---- elements

function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  return put(element, ...children);
}
function put(element, ...children) {
  element.append(...children.flat(5).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const svgSpace = "http://www.w3.org/2000/svg";
function s(tag, props = {}, ...children) {
  const element = document.createElementNS(svgSpace, tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat());
  return element;
}

function figure(x, digits = 2) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x < 0 ? "−∞" : "∞";
  const text = Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en") : x.toFixed(digits);
  return (Number(text.replace(/,/g, "")) === 0 ? text.replace("-", "") : text).replace("-", "−");
}
const percent = (x) =>
  x >= 0.0995 ? `${(100 * x).toFixed(0)} %` : x >= 0.00095 ? `${(100 * x).toFixed(1)} %` : "< 0.1 %";

// ---- colors: Okabe and Ito's for heads, one hue of falling lightness for weights, blue and orange for signs

const dark = () => document.documentElement.dataset.theme === "dark";
const headColors = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b59b00", "#7f7f7f"];
const headColor = (head) => headColors[head % headColors.length];
const ramps = {
  light: [
    [255, 255, 255],
    [222, 233, 244],
    [146, 184, 220],
    [66, 122, 182],
    [16, 64, 122],
    [4, 22, 58],
  ],
  dark: [
    [18, 22, 32],
    [0, 45, 110],
    [66, 78, 108],
    [124, 123, 120],
    [190, 171, 104],
    [254, 232, 56],
  ], // cividis
};
function mix(stops, x) {
  const place = Math.min(Math.max(x, 0), 1) * (stops.length - 1),
    left = Math.min(Math.floor(place), stops.length - 2);
  return stops[left].map((value, i) => value + (stops[left + 1][i] - value) * (place - left));
}
const tables = {};
function ramp() {
  const theme = dark() ? "dark" : "light";
  tables[theme] ??= Array.from({ length: 256 }, (_, i) => mix(ramps[theme], i / 255));
  return tables[theme];
}
const scaled = (weight) => Math.sqrt(Math.min(Math.max(weight, 0), 1)); // so that small weights can be told apart
const weightColor = (weight) => `rgb(${ramp()[Math.round(255 * scaled(weight))].map(Math.round).join()})`;
const onWeight = (weight) =>
  (dark() ? scaled(weight) > 0.72 : scaled(weight) > 0.55) !== dark() ? "#fff" : dark() ? "#000" : "#111";
function signColor(x) {
  const strong = Math.min(Math.abs(x), 1),
    neutral = dark() ? [30, 34, 44] : [246, 246, 244];
  return mix([neutral, x < 0 ? [0, 114, 178] : [213, 94, 0]], Math.sqrt(strong));
}

// ---- attention, by pieces or by words

const cache = new Map();
function remember(key, make) {
  if (!cache.has(key)) {
    if (cache.size > 400) cache.clear();
    cache.set(key, make());
  }
  return cache.get(key);
}

// The labels of a side of an attention, with the pieces that each stands for.
function labels(name) {
  const side = data.sides[name];
  if (!state.words)
    return side.pieces.map((text, i) => ({
      text,
      special: side.special[i],
      pieces: [i],
      inside: i > 0 && side.wordOf[i] === side.wordOf[i - 1],
    }));
  const words = side.words.map((text) => ({ text, pieces: [] }));
  side.wordOf.forEach((word, i) => {
    words[word].pieces.push(i);
    words[word].special = side.special[i];
  });
  return words;
}

// (T, S) weights of a head as rows of floats; of words, if asked: summed over pieces of keys, averaged over queries'.
function weights(index, layer, head) {
  return remember(`w${index}.${layer}.${head}.${state.words}`, () => {
    const attention = data.attentions[index],
      [, , queries, keys] = attention.shape;
    const rows = Array.from({ length: queries }, (_, i) => dense(attention, layer, head, i, keys));
    if (!state.words) return rows;
    const over = labels(attention.columns),
      by = labels(attention.rows);
    return by.map(({ pieces }) =>
      Float32Array.from(over, (word) => {
        let sum = 0;
        for (const i of pieces) for (const j of word.pieces) sum += rows[i][j];
        return sum / pieces.length;
      }),
    );
  });
}
function dense(attention, layer, head, query, keys) {
  if (attention.weights) {
    const { most } = attention.weights;
    return Float32Array.from(attention.weights.at(layer, head, query), (x) => x / most);
  }
  const row = new Float32Array(keys),
    places = attention.places.at(layer, head, query);
  attention.values.at(layer, head, query).forEach((x, i) => {
    row[places[i]] = x / 255;
  });
  return row;
}
function meanWeights(index, layer, heads) {
  if (heads.length === 1) return weights(index, layer, heads[0]);
  return remember(`m${index}.${layer}.${heads}.${state.words}`, () => {
    const maps = heads.map((head) => weights(index, layer, head));
    return maps[0].map((row, i) => row.map((_, j) => maps.reduce((sum, rows) => sum + rows[i][j], 0) / maps.length));
  });
}

const attentionNames = {
  "encoder.self": "Encoder self-attention",
  "decoder.self": "Decoder self-attention",
  "decoder.cross": "Cross-attention",
};
const attentionName = ({ stack, kind }) =>
  data.attentions.length > 1 || kind === "cross" ? attentionNames[`${stack}.${kind}`] : "Self-attention";
const attentionHelp = {
  "encoder.self": "each token of the text attends to every token of the text",
  "decoder.self": "each token attends to itself and to the tokens before it",
  "decoder.cross": "each token of the output attends to the source",
};
const dotted = (attention, layer, head) => `${attention.stack}.${layer}.${attention.kind}.${head}`;

// ---- pictures

// Numbers as an image, a pixel a cell; larger ones are pooled, so that no strong weight is lost.
function image(rows, height, width, color, most = 600) {
  const down = Math.max(1, Math.ceil(height / most)),
    across = Math.max(1, Math.ceil(width / most));
  const tall = Math.ceil(height / down),
    wide = Math.ceil(width / across);
  const canvas = document.createElement("canvas");
  canvas.width = wide;
  canvas.height = tall;
  const context = canvas.getContext("2d"),
    pixels = context.createImageData(wide, tall);
  for (let y = 0; y < tall; y++)
    for (let x = 0; x < wide; x++) {
      let strongest = 0;
      for (let i = y * down; i < Math.min(height, (y + 1) * down); i++) {
        const row = rows[i];
        for (let j = x * across; j < Math.min(width, (x + 1) * across); j++)
          if (Math.abs(row[j]) > Math.abs(strongest)) strongest = row[j];
      }
      const [r, g, b] = color(strongest),
        at = 4 * (y * wide + x);
      pixels.data[at] = r;
      pixels.data[at + 1] = g;
      pixels.data[at + 2] = b;
      pixels.data[at + 3] = 255;
    }
  context.putImageData(pixels, 0, 0);
  return canvas;
}
const mapImage = (rows, most) =>
  image(rows, rows.length, rows[0].length, (w) => ramp()[Math.round(255 * scaled(w))], most);

// A canvas as sharp as the screen: draw(context, width, height) in CSS pixels.
function sharp(canvas, width, height, draw) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  draw(context, width, height);
  return canvas;
}

// ---- choosing

function segmented(name, options, chosen, choose) {
  return h(
    "div",
    { class: "segmented", role: "group", "aria-label": name },
    h("span", { class: "name" }, name),
    options.map(({ value, text, title, dot }) =>
      h(
        "button",
        {
          type: "button",
          title,
          "aria-pressed": String([chosen].flat().includes(value)),
          onclick: (event) => choose(value, event),
        },
        dot && h("i", { class: "dot", style: { background: dot } }),
        text,
      ),
    ),
  );
}

const attention = () => data.attentions[state.attention];
function attentionPicker(only) {
  const options = data.attentions.map((attn, value) => ({
    value,
    text: attentionName(attn),
    title: attentionHelp[`${attn.stack}.${attn.kind}`],
  }));
  return (
    options.length > 1 &&
    segmented(
      "Attention",
      options.filter(({ value }) => !only || only(data.attentions[value])),
      state.attention,
      (value) =>
        change({ attention: value, token: 0, layer: Math.min(state.layer, data.attentions[value].shape[0] - 1) }),
    )
  );
}
function layerPicker() {
  const options = Array.from({ length: attention().shape[0] }, (_, value) => ({ value, text: String(value + 1) }));
  return segmented("Layer", options, state.layer, (layer) => change({ layer }));
}

function change(changes) {
  Object.assign(state, changes);
  render();
}

// One stop for the tab key, and arrows between the items inside.
function roving(holder, items, start = 0) {
  items.forEach((item, i) => {
    item.tabIndex = i === start ? 0 : -1;
  });
  holder.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const here = items.indexOf(document.activeElement);
    if (step === undefined || here < 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = items[Math.min(Math.max(here + step, 0), items.length - 1)];
    items[here].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

function download(name, type, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
