// All layers and heads as small maps.

const workSigns = {
  previous: "#0072b2", same: "#009e73", next: "#56b4e9", first: "#e69f00", end: "#d55e00", diffuse: "#a9a9a9", selective: "#cc79a7", mixed: "#b59b00",
};
const workShort = { previous: "previous", same: "same", next: "next", first: "first", end: "end", diffuse: "diffuse", selective: "selective", mixed: "mixed" };
let workFilter = null;

views.overview = {
  title: "Overview",
  has: () => true,
  show(main) {
    const present = new Set(data.attentions.flatMap((each) => each.work.flat().map(({ kind }) => kind)));
    put(main,
      h("h2", {}, "Every head at a glance"),
      h("p", { class: "lead" },
        "A head is one pair of eyes: for each token (a row) it spreads 100 % of its attention over the tokens it may look at (columns). ",
        "The darker a cell, the more it looks there", dark() ? " (here: the brighter)" : "", ". Choose a map to see it on the words."),
      h("div", { class: "controls" },
        segmented("Work", Object.keys(workSigns).filter((kind) => present.has(kind)).map((kind) => ({
          value: kind, text: workShort[kind], dot: workSigns[kind], title: data.kinds[kind],
        })), workFilter, (kind) => { workFilter = workFilter === kind ? null : kind; filter(); })),
      data.attentions.map(section));
    filter();
  },
};

function filter() {
  for (const map of document.querySelectorAll(".map")) map.classList.toggle("away", workFilter !== null && map.dataset.work !== workFilter);
  for (const button of document.querySelectorAll(".controls .segmented button")) button.setAttribute("aria-pressed", String(button.textContent === workShort[workFilter]));
}

function section(each, index) {
  const [layers, heads] = each.shape;
  const wide = Math.max(64, Math.min(150, Math.floor(1080 / heads)));
  const grid = h("div", { class: "maps", style: { gridTemplateColumns: `auto repeat(${heads}, minmax(${Math.min(wide, 84)}px, ${wide}px))` } });
  for (let layer = 0; layer < layers; layer++) {
    grid.append(h("span", { class: "layer" }, `Layer ${layer + 1}`));
    for (let head = 0; head < heads; head++) grid.append(small(each, index, layer, head));
  }
  roving(grid, [...grid.querySelectorAll("button")]);
  return h("section", { class: "kind" },
    h("h3", {}, attentionName(each)),
    h("p", { class: "lead" }, `Here ${attentionHelp[`${each.stack}.${each.kind}`]}.`),
    grid,
    each.kept < 1 && h("p", { class: "small" }, `The text is long: of every row the largest weights are kept, ${percent(each.kept)} of all attention.`));
}

function small(each, index, layer, head) {
  const work = each.work[layer][head], canvas = h("canvas", { "aria-hidden": "true" });
  const words = state.words;
  state.words = false;
  const picture = mapImage(weights(index, layer, head), 150);
  state.words = words;
  canvas.width = picture.width; canvas.height = picture.height;
  canvas.getContext("2d").drawImage(picture, 0, 0);
  const distance = each.kind === "cross" ? `${figure(work.distance, 1)} from the diagonal` : `mean distance ${figure(work.distance, 1)}`;
  return h("button", {
    type: "button", class: "map", "data-work": work.kind,
    title: `${dotted(each, layer, head)}\n${data.kinds[work.kind]}\nentropy ${figure(work.entropy)} bits, ${distance}`,
    "aria-label": `Layer ${layer + 1}, head ${head + 1}: ${data.kinds[work.kind]}, entropy ${figure(work.entropy)} bits, ${distance}`,
    onclick: () => change({ view: "heads", attention: index, layer, heads: [head], token: Math.min(state.token, each.shape[2] - 1) }),
  }, canvas,
  h("span", { class: "does" }, h("i", { class: "sign", style: { background: workSigns[work.kind] } }), workShort[work.kind]),
  h("span", { class: "figures" }, `H ${figure(work.entropy, 1)} · d ${figure(work.distance, 1)}`));
}
