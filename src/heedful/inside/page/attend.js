// The stops inside a layer: attention, residual and norm, feed-forward.

// Scores, mask and softmax, computed here from the recorded queries and keys.
function scores(attn, stack, part, t, head) {
  const query = part.queries.at(head, t),
    keys = part.keys.shape[1],
    root = Math.sqrt(query.length);
  const raw = [],
    biased = [];
  for (let j = 0; j < keys; j++) {
    const key = part.keys.at(head, j);
    let product = 0;
    for (let i = 0; i < query.length; i++) product += query[i] * key[i];
    raw.push(product);
    let bias = 0;
    if (attn.kind === "self" && stack.slopes) bias = -stack.slopes[head] * Math.abs(t - j);
    if (attn.kind === "self" && stack.tables) {
      const window = (stack.tables.shape[1] - 1) / 2,
        relative = stack.relative ? stack.relative.at(t)[j] : j - t, // in the dependency tree, or in the sequence
        vector = stack.tables.at(state.layer, Math.min(Math.max(relative, -window), window) + window);
      for (let i = 0; i < query.length; i++) bias += (query[i] * vector[i]) / root;
    }
    biased.push(bias);
  }
  const sum = raw.map((x, j) => x / root + biased[j]),
    seen = sum.map((_, j) => !attn.causal || j <= t);
  const most = Math.max(...sum.filter((_, j) => seen[j])),
    powers = sum.map((x, j) => (seen[j] ? Math.exp(x - most) : 0));
  const total = powers.reduce((a, b) => a + b, 0);
  return {
    raw,
    biased,
    sum,
    seen,
    weights: powers.map((x) => x / total),
    hasBias: Boolean(attn.kind === "self" && (stack.slopes || stack.tables)),
  };
}

function gathered(part, row, head) {
  const result = new Float32Array(part.values.shape[2]);
  row.weights.forEach((weight, j) =>
    part.values.at(head, j).forEach((x, i) => {
      result[i] += weight * x;
    }),
  );
  return result;
}

function attendStops(attn, stack, part, t) {
  const head = state.heads[0],
    row = scores(attn, stack, part, t, head),
    over = data.sides[attn.columns].pieces;
  const strongest = [...over.keys()].sort((a, b) => row.weights[b] - row.weights[a]);
  const few = strongest.slice(0, 5).filter((j, n) => n === 0 || row.weights[j] >= 0.005),
    key = strongest[0];
  const z = gathered(part, row, head),
    all = Array.from({ length: attn.shape[1] }, (_, i) =>
      i === head ? z : gathered(part, scores(attn, stack, part, t, i), i),
    );
  const limit = strong(...few.map((j) => part.values.at(head, j))),
    from =
      attn.kind === "cross" ? "The query comes from the decoder, keys and values from the encoder's last layer." : "";
  return [
    stop(
      "Query, key and value",
      `Head ${head + 1} projects the vectors by three learned matrices: the query of this ` +
        `token, and the key and the value of every token. ${from}`,
      "q = x W^Q , ~ k = x W^K , ~ v = x W^V",
      strip(`q of “${data.sides[attn.rows].pieces[t]}”`, part.queries.at(head, t)),
      strip(`k of “${over[key]}”`, part.keys.at(head, key)),
      strip(`v of “${over[key]}”`, part.values.at(head, key)),
      h(
        "p",
        { class: "small" },
        `${part.queries.shape[2]} numbers each`,
        data.model.positions === "rotary" &&
          attn.kind === "self" &&
          ", queries and keys already rotated by their positions",
        "; the key with the highest weight is shown.",
      ),
    ),
    stop(
      "Scores, mask and softmax",
      `The query is compared with every key. ${attn.causal ? "Later tokens are masked (−∞). " : ""}The ` +
        `softmax turns the scores into weights that sum to 100 %.`,
      `w = softmax( frac{q · k}{sqrt{d_k}} ${row.hasBias ? "+ b" : ""} ${attn.causal ? "+ mask" : ""} )`,
      scoreTable(attn, row, over, strongest, part.queries.shape[2]),
    ),
    stop(
      "Weighted sum",
      "The output of the head is the sum of the values, weighted by attention.",
      "z = ∑_j w_j v_j",
      few.map((j) => strip(`${percent(row.weights[j])} of “${over[j]}”`, part.values.at(head, j), limit)),
      row.weights.length > few.length &&
        h("div", { class: "sign-op" }, `and ${row.weights.length - few.length} more`),
      strip("z, all together", z, limit, true),
    ),
    stop(
      "All heads together",
      `The outputs of all ${attn.shape[1]} heads are concatenated ` +
        `and multiplied by the output matrix.${shownOf(part.out.shape[1])}`,
      "o = Concat( z_1 , … , z_h ) W^O",
      all.slice(0, 16).map((vector, i) => strip(`z of head ${i + 1}`, vector, strong(...all), i === head)),
      strip("o", part.out.at(t)),
    ),
  ];
}

function scoreTable(attn, row, over, strongest, width) {
  const many = over.length > 30,
    shown = (many ? strongest.slice(0, 30) : strongest.slice()).sort((a, b) => a - b);
  return [
    h(
      "table",
      { class: "scores" },
      h(
        "tr",
        {},
        h("th", {}, "key"),
        h("th", {}, "q · k"),
        h("th", {}, `÷ √${width}`),
        row.hasBias && h("th", {}, "+ position"),
        attn.causal && h("th", {}, "mask"),
        h("th", {}, "softmax"),
        h("th", { class: "bar" }),
      ),
      shown.map((j) =>
        h(
          "tr",
          { class: row.seen[j] ? "" : "hidden-key" },
          h("td", {}, h("bdi", {}, over[j])),
          h("td", {}, figure(row.raw[j])),
          h("td", {}, figure(row.sum[j] - row.biased[j])),
          row.hasBias && h("td", {}, figure(row.biased[j])),
          attn.causal && h("td", {}, row.seen[j] ? "0" : "−∞"),
          h("td", {}, figure(row.weights[j], 3)),
          h(
            "td",
            { class: "bar" },
            row.seen[j] &&
              h("i", { style: { width: `${100 * row.weights[j]}%`, background: headColor(state.heads[0]) } }),
          ),
        ),
      ),
    ),
    many && h("p", { class: "small" }, `The 30 largest of ${over.length}.`),
  ];
}

const NORMS = {
  LayerNorm: "normalized to mean 0 and deviation 1",
  RMSNorm: "divided by its root mean square",
  BatchNorm: "normalized by running means and variances",
  InstanceNorm: "normalized by means and variances over the sequence",
};

// What goes into a sublayer is what came out of the one before.
function before(stack, kind, t) {
  const layer = stack.layers[state.layer],
    below = { self: null, cross: layer.self, feed: layer.cross || layer.self }[kind];
  if (below) return below.after.at(t);
  return state.layer ? stack.layers[state.layer - 1].feed.after.at(t) : stack.placed.at(t);
}

function residualStop(stack, part, t, kind) {
  const name = { self: "self-attention", cross: "cross-attention", feed: "the feed-forward layer" }[kind],
    post = !part.normed;
  const x = before(stack, kind, t),
    out = part.out.at(t),
    sum = x.map((value, i) => value + out[i]),
    most = strong(x, out, sum);
  return stop(
    post ? "Residual and norm" : "Residual",
    `The output of ${name} is added to its input ` +
      `(residual connection)${post ? `; the sum is ${NORMS[stack.norm]}, then scaled by learned weights.` : "."}`,
    post ? `y = ${stack.norm}( x + o )` : "y = x + o",
    strip("x", x, most),
    strip("+ o", out, most),
    post ? strip("x + o", sum, most) : null,
    post && statistics(part, t),
    strip(post ? "y, normalized" : "y", part.after.at(t)),
  );
}

function expertStop(feed, t) {
  return stop(
    "Feed-forward, by experts",
    `A gating network selects ${feed.experts.shape[1]} of ${data.model.experts} feed-forward layers, the experts, for ` +
      "this token; their outputs are weighted by its gates and added.",
    "o = ∑_i G_i ( y ) E_i ( y )",
    h("p", {}, expertsOf(feed, t)),
    strip("o", feed.out.at(t)),
  );
}

function feedStop(feed, t) {
  if (feed.experts) return expertStop(feed, t);
  const units = feed.units.at(t),
    values = feed.values.at(t),
    name = { relu: "max(0, ·)", swiglu: "SiLU with a gate", silu: "SiLU" }[data.model.activation] || "GELU";
  return stop(
    "Feed-forward",
    `Applied to each token separately: ${data.model.dFf.toLocaleString("en")} hidden units, projected ` +
      `back to the model's width. Of these units ${percent(feed.active.at(t)[0])} are above zero here.`,
    "o = f( y W_1 + b_1 ) W_2 + b_2",
    h("p", { class: "small" }, `f is ${name}.`),
    h(
      "table",
      {},
      h(
        "tr",
        {},
        h("th", {}, "strongest units"),
        Array.from(units, (unit) => h("td", { class: "code" }, unit)),
      ),
      h(
        "tr",
        {},
        h("th", {}, "value"),
        Array.from(values, (x) =>
          h("td", {}, h("b", { style: { color: x < 0 ? "var(--accent)" : "var(--warm)" } }, figure(x))),
        ),
      ),
    ),
    strip("o", feed.out.at(t)),
  );
}
