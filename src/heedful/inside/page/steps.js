// From text to probabilities, for one token, layer and head: the real numbers of this run, and the equation beside them.

const mi = (x) => `<mi>${x}</mi>`, mo = (x) => `<mo>${x}</mo>`, mn = (x) => `<mn>${x}</mn>`;
const sub = (x, y) => `<msub>${mi(x)}${y.length > 1 ? `<mtext>${y}</mtext>` : mi(y)}</msub>`;
const sup = (x, y) => `<msup>${mi(x)}${mi(y)}</msup>`;
const row = (...parts) => `<mrow>${parts.join("")}</mrow>`;

views.steps = {
  title: "Step through",
  has: () => true,
  show(main) {
    const each = attention(), side = data.sides[each.rows];
    state.token = Math.min(state.token, side.pieces.length - 1);
    state.layer = Math.min(state.layer, each.shape[0] - 1);
    state.heads = [Math.min(state.heads[0], each.shape[1] - 1)];
    const heads = Array.from({ length: each.shape[1] }, (_, value) => ({ value, text: String(value + 1), dot: headColour(value) }));
    const chips = h("div", { class: "chips", role: "group", "aria-label": "Token" }, side.pieces.map((text, i) => h("button", {
      type: "button", class: `chip ${side.special[i] ? "special" : ""}`, "aria-pressed": String(i === state.token), onclick: () => change({ token: i }),
    }, h("bdi", {}, text))));
    roving(chips, [...chips.children], state.token);
    put(main,
      h("h2", {}, "From text to probabilities, step by step"),
      h("p", { class: "lead" }, "Choose a token, a layer and a head, and follow the numbers that this model computed for them. Orange is above zero, blue below; the first numbers of each vector are written out."),
      h("div", { class: "controls" }, attentionPicker(), layerPicker(), segmented("Head", heads, state.heads[0], (head) => change({ heads: [head] }))),
      chips,
      h("ol", { class: "stops" }, stops(each).filter(Boolean).map((stop, i) => { stop.dataset.number = i + 1; return stop; })));
  },
};

function stop(title, say, equation, ...content) {
  return h("li", { class: "stop" },
    h("div", {}, h("h3", {}, title), h("p", { class: "say" }, say)),
    h("div", { class: "side" }, equation && formula(equation)),
    h("div", { class: "wide" }, content));
}

// A vector as a row of cells; `limit` is the number that is fully coloured.
function strip(what, values, limit, chosen) {
  const most = limit || Math.max(1e-9, ...Array.from(values, Math.abs));
  const canvas = image([values], 1, values.length, (x) => signColour(x / most), 4096);
  canvas.title = `${values.length} numbers from ${figure(Math.min(...values))} to ${figure(Math.max(...values))}`;
  canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", canvas.title);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect(), i = Math.floor(((event.clientX - box.left) / box.width) * values.length);
    if (i >= 0 && i < values.length) canvas.title = `number ${i + 1}: ${figure(values[i], 4)}`;
  });
  const first = Array.from(values.subarray(0, 7), (x) => figure(x)).join("  ");
  return h("div", { class: `strip ${chosen ? "chosen" : ""}` }, h("span", { class: "what" }, what), canvas, h("span", { class: "figures" }, `[ ${first}${values.length > 7 ? "  …" : ""} ]`));
}
const strong = (...vectors) => Math.max(1e-9, ...vectors.flatMap((vector) => Array.from(vector, Math.abs)));
const shownOf = (width) => (data.model.dModel > width ? ` Of ${data.model.dModel} numbers the first ${width} are drawn.` : "");

function stops(each) {
  const stack = data.steps[each.stack], layer = stack.layers[state.layer], part = layer[each.kind], t = state.token;
  const last = state.layer === stack.layers.length - 1;
  return [
    readStop(each), embedStop(each, stack, t), inStop(each, part, t),
    ...(part.queries ? attendStops(each, stack, part, t) : [stop("Queries, keys and values", "The text is too long to keep them for this layer; an earlier layer or a shorter text has them.", null)]),
    residualStop(each, part, t, each.kind),
    each.kind === "self" && layer.cross && stop("Cross-attention", "Between the two the decoder looks at the source in the same way.", null,
      h("button", { type: "button", onclick: () => change({ attention: data.attentions.findIndex(({ kind }) => kind === "cross") }) }, "Step through cross-attention →")),
    feedStop(layer.feed, t), residualStop(each, layer.feed, t, "feed"),
    last ? outputStop(each, stack, t) : stop(`On to layer ${state.layer + 2}`, "The next layer does the same with weights of its own.", null,
      h("button", { type: "button", onclick: () => change({ layer: state.layer + 1 }) }, `Layer ${state.layer + 2} →`), " ",
      h("button", { type: "button", onclick: () => change({ layer: stack.layers.length - 1 }) }, "Last layer, and the output →")),
  ];
}

function readStop(each) {
  const side = data.sides[each.rows], from = Math.max(0, state.token - 6);
  const cells = side.pieces.slice(from, from + 13).map((text, i) => ({ text, id: side.ids[from + i], here: from + i === state.token }));
  return stop("Text becomes ids", "The text is cut into pieces of its vocabulary, and each piece is a number from here on.", row(mi("text"), mo("→"), sub("id", "1"), mo(","), sub("id", "2"), mo(","), mo("…")),
    h("table", {}, h("tr", {}, h("th", {}, "piece"), cells.map(({ text, here }) => h("td", {}, here ? h("b", {}, h("bdi", {}, text)) : h("bdi", {}, text)))),
      h("tr", {}, h("th", {}, "id"), cells.map(({ id, here }) => h("td", {}, here ? h("b", {}, id) : id)))));
}

function embedStop(each, stack, t) {
  const parts = [stack.embedded.at(t), stack.position && stack.position.at(t), stack.placed.at(t)].filter(Boolean), most = strong(...parts);
  const scale = data.model.scaled ? row(mo("·"), `<msqrt>${sub("d", "model")}</msqrt>`) : "";
  const equation = stack.position ? row(mi("x"), mo("="), sub("E", "id"), scale, mo("+"), sub("P", "pos")) : row(mi("x"), mo("="), sub("E", "id"), scale);
  const how = { rotary: "Positions come later here: queries and keys are turned by an angle that grows with position.", alibi: "Positions come later here: scores fall with distance.", relative: "Positions come later here: scores get a learned term for each distance." }[data.model.positions];
  return stop(stack.position ? "Embedding and position" : "Embedding",
    (stack.position ? "The id picks a learned vector; a second vector says where the token stands, and both are added." : `The id picks a learned vector. ${how}`) + (data.model.embeddingNorm ? " A LayerNorm follows." : "") + shownOf(parts[0].length),
    equation, strip("embedding", parts[0], most), stack.position && strip(`position ${t}`, parts[1], most), stack.position && strip(data.model.embeddingNorm ? "sum, normed" : "sum", parts[2], most));
}

function inStop(each, part, t) {
  const pre = part.normed;
  return stop(`Into layer ${state.layer + 1}`, pre ? "The vector so far is normed before the sublayer reads it." : each.kind === "cross" ? "The vector as self-attention left it." : state.layer ? `The vector as layer ${state.layer} left it.` : "The vector as it comes from below.",
    pre ? row(mi("x′"), mo("="), mi("LayerNorm"), mo("("), mi("x"), mo(")")) : null,
    strip("x", part.in.at(t)), pre && strip("LayerNorm(x)", part.normed.at(t)), pre && statistics(part, t));
}
const statistics = (part, t) => h("p", { class: "small" }, `mean ${figure(part.mean.at(t)[0], 3)}, standard deviation ${figure(part.deviation.at(t)[0], 3)} over all ${data.model.dModel} numbers`);

// Scores, mask and softmax, computed here from the recorded queries and keys.
function scores(each, stack, part, t, head) {
  const query = part.queries.at(head, t), keys = part.keys.shape[1], root = Math.sqrt(query.length);
  const raw = [], biased = [];
  for (let j = 0; j < keys; j++) {
    const key = part.keys.at(head, j);
    let product = 0;
    for (let i = 0; i < query.length; i++) product += query[i] * key[i];
    raw.push(product);
    let bias = 0;
    if (each.kind === "self" && stack.slopes) bias = -stack.slopes[head] * Math.abs(t - j);
    if (each.kind === "self" && stack.tables) {
      const window = (stack.tables.shape[1] - 1) / 2, vector = stack.tables.at(state.layer, Math.min(Math.max(j - t, -window), window) + window);
      for (let i = 0; i < query.length; i++) bias += (query[i] * vector[i]) / root;
    }
    biased.push(bias);
  }
  const sum = raw.map((x, j) => x / root + biased[j]), seen = sum.map((_, j) => !each.causal || j <= t);
  const most = Math.max(...sum.filter((_, j) => seen[j])), powers = sum.map((x, j) => (seen[j] ? Math.exp(x - most) : 0));
  const total = powers.reduce((a, b) => a + b, 0);
  return { raw, biased, sum, seen, weights: powers.map((x) => x / total), hasBias: Boolean(each.kind === "self" && (stack.slopes || stack.tables)) };
}

function gathered(part, found, head) {
  const result = new Float32Array(part.values.shape[2]);
  found.weights.forEach((weight, j) => part.values.at(head, j).forEach((x, i) => { result[i] += weight * x; }));
  return result;
}

function attendStops(each, stack, part, t) {
  const head = state.heads[0], found = scores(each, stack, part, t, head), over = data.sides[each.columns].pieces;
  const strongest = [...over.keys()].sort((a, b) => found.weights[b] - found.weights[a]);
  const few = strongest.slice(0, 5).filter((j, n) => n === 0 || found.weights[j] >= 0.005), key = strongest[0];
  const z = gathered(part, found, head), all = Array.from({ length: each.shape[1] }, (_, i) => (i === head ? z : gathered(part, scores(each, stack, part, t, i), i)));
  const limit = strong(...few.map((j) => part.values.at(head, j))), from = each.kind === "cross" ? "The query comes from the decoder, keys and values from the encoder's last layer." : "";
  return [
    stop("Query, key and value", `Head ${head + 1} looks through three matrices of its own: what this token asks, what each token offers, what it would pass on. ${from}`,
      row(mi("q"), mo("="), mi("x"), sup("W", "Q"), mo(","), `<mspace width="0.6em"/>`, mi("k"), mo("="), mi("x"), sup("W", "K"), mo(","), `<mspace width="0.6em"/>`, mi("v"), mo("="), mi("x"), sup("W", "V")),
      strip(`q of “${data.sides[each.rows].pieces[t]}”`, part.queries.at(head, t)), strip(`k of “${over[key]}”`, part.keys.at(head, key)), strip(`v of “${over[key]}”`, part.values.at(head, key)),
      h("p", { class: "small" }, `${part.queries.shape[2]} numbers each${data.model.positions === "rotary" && each.kind === "self" ? ", queries and keys already turned by their positions" : ""}; shown is the key that matches best.`)),
    stop("Scores, mask and softmax", `The query is compared with every key. ${each.causal ? "What comes later is hidden (−∞). " : ""}The softmax makes shares of 100 % of the scores.`,
      row(mi("w"), mo("="), mi("softmax"), mo("("), `<mfrac>${row(mi("q"), mo("·"), mi("k"))}<msqrt>${sub("d", "k")}</msqrt></mfrac>`, found.hasBias ? row(mo("+"), mi("b")) : "", each.causal ? row(mo("+"), mi("mask")) : "", mo(")")),
      scoreTable(each, found, over, strongest, part.queries.shape[2])),
    stop("Weighted sum", "The values are added up in these shares: this is what the head found.", row(mi("z"), mo("="), `<munder>${mo("∑")}${mi("j")}</munder>`, sub("w", "j"), sub("v", "j")),
      few.map((j) => strip(`${percent(found.weights[j])} of “${over[j]}”`, part.values.at(head, j), limit)),
      found.weights.length > few.length && h("div", { class: "sign-op" }, `and ${found.weights.length - few.length} more`), strip("z, all together", z, limit, true)),
    stop("All heads together", `The findings of all ${each.shape[1]} heads stand side by side, and a matrix mixes them.${shownOf(part.out.shape[1])}`, row(mi("o"), mo("="), mi("Concat"), mo("("), sub("z", "1"), mo(","), mo("…"), mo(","), sub("z", "h"), mo(")"), sup("W", "O")),
      all.slice(0, 16).map((vector, i) => strip(`z of head ${i + 1}`, vector, strong(...all), i === head)), strip("o", part.out.at(t))),
  ];
}

function scoreTable(each, found, over, strongest, width) {
  const many = over.length > 30, shown = (many ? strongest.slice(0, 30) : strongest.slice()).sort((a, b) => a - b);
  return [h("table", { class: "scores" },
    h("tr", {}, h("th", {}, "key"), h("th", {}, "q · k"), h("th", {}, `÷ √${width}`), found.hasBias && h("th", {}, "+ position"), each.causal && h("th", {}, "mask"), h("th", {}, "softmax"), h("th", { class: "bar" })),
    shown.map((j) => h("tr", { class: found.seen[j] ? "" : "hidden-key" },
      h("td", {}, h("bdi", {}, over[j])), h("td", {}, figure(found.raw[j])), h("td", {}, figure(found.sum[j] - found.biased[j])), found.hasBias && h("td", {}, figure(found.biased[j])),
      each.causal && h("td", {}, found.seen[j] ? "0" : "−∞"), h("td", {}, figure(found.weights[j], 3)),
      h("td", { class: "bar" }, h("i", { style: { width: `${100 * found.weights[j]}%`, background: headColour(state.heads[0]) } }))))),
  many && h("p", { class: "small" }, `The 30 largest of ${over.length}.`)];
}

function residualStop(each, part, t, kind) {
  const name = { self: "self-attention", cross: "cross-attention", feed: "the feed-forward layer" }[kind], post = !part.normed;
  const most = strong(part.in.at(t), part.out.at(t), part.sum.at(t));
  return stop(post ? "Residual and norm" : "Residual", `What ${name} found is added to what was there${post ? ", and the sum is brought to mean 0 and deviation 1, then scaled by learned numbers." : "."}`,
    post ? row(mi("y"), mo("="), mi("LayerNorm"), mo("("), mi("x"), mo("+"), mi("o"), mo(")")) : row(mi("y"), mo("="), mi("x"), mo("+"), mi("o")),
    strip("x", part.in.at(t), most), strip("+ o", part.out.at(t), most), post ? strip("x + o", part.sum.at(t), most) : null, post && statistics(part, t), strip(post ? "y, normed" : "y", part.after.at(t)));
}

function feedStop(feed, t) {
  const units = feed.units.at(t), values = feed.values.at(t), name = { relu: "max(0, ·)", swiglu: "SiLU with a gate", silu: "SiLU" }[data.model.activation] || "GELU";
  return stop("Feed-forward", `Each token by itself: ${data.model.dFf.toLocaleString("en")} units look for patterns, and what they find is written back. Of these units ${percent(feed.active.at(t)[0])} are above zero here.`,
    row(mi("o"), mo("="), mi("f"), mo("("), mi("y"), sub("W", "1"), mo("+"), sub("b", "1"), mo(")"), sub("W", "2"), mo("+"), sub("b", "2")),
    h("p", { class: "small" }, `f is ${name}.`),
    h("table", {}, h("tr", {}, h("th", {}, "strongest units"), Array.from(units, (unit) => h("td", { class: "code" }, unit))),
      h("tr", {}, h("th", {}, "value"), Array.from(values, (x) => h("td", {}, h("b", { style: { color: x < 0 ? "var(--accent)" : "var(--warm)" } }, figure(x)))))),
    strip("o", feed.out.at(t)));
}
