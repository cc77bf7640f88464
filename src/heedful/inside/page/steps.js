// From text to probabilities, for one token, layer and head: the numbers of this run, the equation beside them.

views.steps = {
  title: "Step through",
  has: () => Boolean(data.steps),
  show(main) {
    const attn = attention(),
      side = data.sides[attn.rows];
    state.token = Math.min(state.token, side.pieces.length - 1);
    state.layer = Math.min(state.layer, attn.shape[0] - 1);
    state.heads = [Math.min(state.heads[0], attn.shape[1] - 1)];
    const heads = Array.from({ length: attn.shape[1] }, (_, value) => ({
      value,
      text: String(value + 1),
      dot: headColor(value),
    }));
    const chips = h(
      "div",
      { class: "chips", role: "group", "aria-label": "Token" },
      side.pieces.map((text, i) =>
        h(
          "button",
          {
            type: "button",
            class: `chip ${side.special[i] ? "special" : ""}`,
            "aria-pressed": String(i === state.token),
            onclick: () => change({ token: i }),
          },
          h("bdi", {}, text),
        ),
      ),
    );
    roving(chips, [...chips.children], state.token);
    put(
      main,
      h("h2", {}, "From text to probabilities, step by step"),
      h(
        "p",
        { class: "lead" },
        "Choose a token, a layer and a head, and follow the numbers that this model computed for " +
          "them. Orange is above zero, blue below; the first numbers of each vector are written out.",
      ),
      h(
        "div",
        { class: "controls" },
        attentionPicker(),
        layerPicker(),
        segmented("Head", heads, state.heads[0], (head) => change({ heads: [head] })),
      ),
      chips,
      h(
        "ol",
        { class: "stops" },
        stops(attn)
          .filter(Boolean)
          .map((stop, i) => {
            stop.dataset.number = i + 1;
            return stop;
          }),
      ),
    );
  },
};

function stop(title, say, equation, ...content) {
  return h(
    "li",
    { class: "stop" },
    h("div", {}, h("h3", {}, title), h("p", { class: "say" }, say)),
    h("div", { class: "side" }, equation && formula(equation)),
    h("div", { class: "wide" }, content),
  );
}

// A vector as a row of cells; `limit` is the number that is fully colored.
function strip(what, values, limit, chosen) {
  const most = limit || Math.max(1e-9, ...Array.from(values, Math.abs));
  const canvas = image([values], 1, values.length, (x) => signColor(x / most), 4096);
  canvas.title = `${values.length} numbers from ${figure(Math.min(...values))} to ${figure(Math.max(...values))}`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", canvas.title);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect(),
      i = Math.floor(((event.clientX - box.left) / box.width) * values.length);
    if (i >= 0 && i < values.length) canvas.title = `number ${i + 1}: ${figure(values[i], 4)}`;
  });
  const first = Array.from(values.subarray(0, 7), (x) => figure(x)).join("  ");
  return h(
    "div",
    { class: `strip ${chosen ? "chosen" : ""}` },
    h("span", { class: "what" }, what),
    canvas,
    h("span", { class: "figures" }, `[ ${first}${values.length > 7 ? "  …" : ""} ]`),
  );
}
const strong = (...vectors) => Math.max(1e-9, ...vectors.flatMap((vector) => Array.from(vector, Math.abs)));
const shownOf = (width) =>
  data.model.dModel > width ? ` Of ${data.model.dModel} numbers the first ${width} are drawn.` : "";

function stops(attn) {
  const stack = data.steps[attn.stack],
    layer = stack.layers[state.layer],
    part = layer[attn.kind],
    t = state.token;
  const last = state.layer === stack.layers.length - 1;
  return [
    readStop(attn),
    embedStop(attn, stack, t),
    inStop(attn, stack, part, t),
    ...(part.queries
      ? attendStops(attn, stack, part, t)
      : [
          stop(
            "Queries, keys and values",
            attn.kind === "self" && data.model.attention[attn.stack] !== "full"
              ? `Attention of the kind “${data.model.attention[attn.stack]}” computes its weights differently; ` +
                  "the weights themselves are in the other views."
              : "The text is too long to keep them for this layer; an earlier layer or a shorter text has them.",
            null,
          ),
        ]),
    residualStop(stack, part, t, attn.kind),
    attn.kind === "self" &&
      layer.cross &&
      stop(
        "Cross-attention",
        "Between self-attention and feed-forward, the decoder attends to the source in the same way.",
        null,
        h(
          "button",
          {
            type: "button",
            onclick: () => change({ attention: data.attentions.findIndex(({ kind }) => kind === "cross") }),
          },
          "Step through cross-attention →",
        ),
      ),
    feedStop(layer.feed, t),
    residualStop(stack, layer.feed, t, "feed"),
    last
      ? outputStop(attn, stack, t)
      : stop(
          `On to layer ${state.layer + 2}`,
          "The next layer does the same with its own weights.",
          null,
          h(
            "button",
            { type: "button", onclick: () => change({ layer: state.layer + 1 }) },
            `Layer ${state.layer + 2} →`,
          ),
          " ",
          h(
            "button",
            { type: "button", onclick: () => change({ layer: stack.layers.length - 1 }) },
            "Last layer, and the output →",
          ),
        ),
  ];
}

function readStop(attn) {
  const side = data.sides[attn.rows],
    from = Math.max(0, state.token - 6);
  const cells = side.pieces
    .slice(from, from + 13)
    .map((text, i) => ({ text, id: side.ids[from + i], here: from + i === state.token }));
  return stop(
    "Tokenization",
    "The text is split into tokens of the vocabulary, and each token has an id.",
    "text → id_1 , id_2 , …",
    h(
      "table",
      {},
      h(
        "tr",
        {},
        h("th", {}, "token"),
        cells.map(({ text, here }) => h("td", {}, here ? h("b", {}, h("bdi", {}, text)) : h("bdi", {}, text))),
      ),
      h(
        "tr",
        {},
        h("th", {}, "id"),
        cells.map(({ id, here }) => h("td", {}, here ? h("b", {}, id) : id)),
      ),
    ),
  );
}

function embedStop(attn, stack, t) {
  const parts = [stack.embedded.at(t), stack.position && stack.position.at(t), stack.placed.at(t)].filter(Boolean),
    most = strong(...parts);
  const scale = data.model.scaled ? "· sqrt{d_model}" : "";
  const equation = `x = E_id ${scale} ${stack.position ? "+ P_pos" : ""}`;
  const how = {
    rotary: "Positions enter later: queries and keys are rotated by an angle proportional to position.",
    alibi: "Positions enter later: scores fall with distance (ALiBi).",
    relative: "Positions enter later: scores get a learned term for each distance.",
  }[data.model.positions];
  return stop(
    stack.position ? "Embedding and position" : "Embedding",
    (stack.position
      ? "The id selects a learned vector; the vector of its position is added."
      : `The id selects a learned vector. ${how}`) +
      (data.model.embeddingNorm ? " A LayerNorm follows." : "") +
      shownOf(parts[0].length),
    equation,
    strip("embedding", parts[0], most),
    stack.position && strip(`position ${t}`, parts[1], most),
    stack.position && strip(data.model.embeddingNorm ? "sum, normalized" : "sum", parts[2], most),
  );
}

function inStop(attn, stack, part, t) {
  const pre = part.normed;
  return stop(
    `Into layer ${state.layer + 1}`,
    pre
      ? `Pre-norm: the vector is ${NORMS[stack.norm]} before the sublayer reads it.`
      : attn.kind === "cross"
        ? "The output of self-attention."
        : state.layer
          ? `The output of layer ${state.layer}.`
          : "The embedding.",
    pre ? `x′ = ${stack.norm}( x )` : null,
    strip("x", before(stack, attn.kind, t)),
    pre && strip(`${stack.norm}(x)`, part.normed.at(t)),
    pre && statistics(part, t),
  );
}
const statistics = (part, t) =>
  h(
    "p",
    { class: "small" },
    `mean ${figure(part.mean.at(t)[0], 3)}, standard deviation ` +
      `${figure(part.deviation.at(t)[0], 3)} over all ${data.model.dModel} numbers`,
  );
