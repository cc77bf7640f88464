// All layers and heads as small maps.

const workSigns = {
  previous: "#0072b2",
  same: "#009e73",
  next: "#56b4e9",
  first: "#e69f00",
  end: "#d55e00",
  diffuse: "#a9a9a9",
  selective: "#cc79a7",
  mixed: "#b59b00",
};
const workShort = {
  previous: "previous",
  same: "same",
  next: "next",
  first: "first",
  end: "end",
  diffuse: "diffuse",
  selective: "selective",
  mixed: "mixed",
};
let workFilter = null;

views.overview = {
  title: "Overview",
  has: () => true,
  show(main) {
    const present = new Set(data.attentions.flatMap((attn) => attn.work.flat().map(({ kind }) => kind)));
    put(
      main,
      h("h2", {}, "Every head at a glance"),
      h(
        "p",
        { class: "lead" },
        "For each token (a row), a head distributes " +
          "100 % of its attention over the tokens that it may attend to (columns). ",
        `The ${dark() ? "brighter" : "darker"} a cell, the higher the weight. Below each ` +
          `map: the apparent role of the head, the entropy H of its attention in bits, `,
        "and the mean attention distance d in tokens. Select a map to see it on the words.",
      ),
      h(
        "div",
        { class: "controls" },
        segmented(
          "Role",
          Object.keys(workSigns)
            .filter((kind) => present.has(kind))
            .map((kind) => ({
              value: kind,
              text: workShort[kind],
              dot: workSigns[kind],
              title: data.kinds[kind],
            })),
          workFilter,
          (kind) => {
            workFilter = workFilter === kind ? null : kind;
            filter();
          },
        ),
      ),
      h("div", { class: "all-kinds" }, data.attentions.map(section)),
    );
    filter();
  },
};

function filter() {
  for (const map of document.querySelectorAll(".map"))
    map.classList.toggle("away", workFilter !== null && map.dataset.work !== workFilter);
  for (const button of document.querySelectorAll(".controls .segmented button"))
    button.setAttribute("aria-pressed", String(button.textContent === workShort[workFilter]));
}

function section(attn, index) {
  const [layers, heads] = attn.shape;
  const wide = Math.max(64, Math.min(150, Math.floor((heads <= 4 ? 472 : 1060) / heads)));
  const grid = h("div", {
    class: "maps",
    style: { gridTemplateColumns: `auto repeat(${heads}, minmax(${Math.min(wide, 84)}px, ${wide}px))` },
  });
  for (let layer = 0; layer < layers; layer++) {
    grid.append(h("span", { class: "layer" }, `Layer ${layer + 1}`));
    for (let head = 0; head < heads; head++) grid.append(small(attn, index, layer, head));
  }
  roving(grid, [...grid.querySelectorAll("button")]);
  return h(
    "section",
    { class: "kind" },
    h("h3", {}, attentionName(attn)),
    h("p", { class: "lead" }, `Here ${attentionHelp[`${attn.stack}.${attn.kind}`]}.`),
    grid,
    attn.kept < 1 &&
      h(
        "p",
        { class: "small" },
        `The text is long: of every row the largest weights are kept, ${percent(attn.kept)} of all attention.`,
      ),
  );
}

function small(attn, index, layer, head) {
  const work = attn.work[layer][head],
    canvas = h("canvas", { "aria-hidden": "true" });
  const distance =
    attn.kind === "cross"
      ? `${figure(work.distance, 1)} from the diagonal`
      : `mean distance ${figure(work.distance, 1)}`;
  canvas.drawNow = () => thumbnail(canvas, attn, layer, head);
  seen.observe(canvas);
  return h(
    "button",
    {
      type: "button",
      class: "map",
      "data-work": work.kind,
      title:
        `${dotted(attn, layer, head)}\n${data.kinds[work.kind]}\nentropy ` +
        `${figure(work.entropy)} bits, ${distance}`,
      "aria-label":
        `Layer ${layer + 1}, head ${head + 1}: ${data.kinds[work.kind]}, ` +
        `entropy ${figure(work.entropy)} bits, ${distance}`,
      onclick: () =>
        change({
          view: "heads",
          attention: index,
          layer,
          heads: [head],
          token: Math.min(state.token, attn.shape[2] - 1),
        }),
    },
    canvas,
    h(
      "span",
      { class: "does" },
      h("i", { class: "sign", style: { background: workSigns[work.kind] } }),
      workShort[work.kind],
    ),
    h("span", { class: "figures" }, `H ${figure(work.entropy, 1)} · d ${figure(work.distance, 1)}`),
  );
}

// Maps are drawn when they come into sight.
const seen = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries)
      if (isIntersecting) {
        seen.unobserve(target);
        target.drawNow();
      }
  },
  { rootMargin: "200px" },
);

// A head's weights straight from their bytes, a pixel a cell; of large ones the strongest of neighbours.
function thumbnail(canvas, attn, layer, head, most = 150) {
  const [, , queries, keys] = attn.shape,
    down = Math.ceil(queries / most),
    across = Math.ceil(keys / most);
  const tall = Math.ceil(queries / down),
    wide = Math.ceil(keys / across),
    cells = new Uint8Array(tall * wide);
  const put = (i, j, x) => {
    const at = Math.floor(i / down) * wide + Math.floor(j / across);
    if (x > cells[at]) cells[at] = x;
  };
  if (attn.weights) {
    const values = attn.weights.at(layer, head),
      shift = attn.weights.most > 255 ? 8 : 0;
    if (down === 1 && across === 1)
      values.forEach((x, at) => {
        cells[at] = x >> shift;
      });
    else
      for (let i = 0, at = 0; i < queries; i++) for (let j = 0; j < keys; j++, at++) put(i, j, values[at] >> shift);
  } else {
    const values = attn.values.at(layer, head),
      places = attn.places.at(layer, head),
      kept = attn.places.shape[3];
    values.forEach((x, at) => put(Math.floor(at / kept), places[at], x));
  }
  canvas.width = wide;
  canvas.height = tall;
  const context = canvas.getContext("2d"),
    pixels = context.createImageData(wide, tall),
    paint = new Uint32Array(pixels.data.buffer);
  const colors = Uint32Array.from({ length: 256 }, (_, x) => {
    const [r, g, b] = ramp()[Math.round(255 * scaled(x / 255))].map(Math.round);
    return (255 << 24) | (b << 16) | (g << 8) | r;
  });
  cells.forEach((x, at) => {
    paint[at] = colors[x];
  });
  context.putImageData(pixels, 0, 0);
}
