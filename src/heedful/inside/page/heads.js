// One head, or several, on the words themselves and as a heat map with values.

views.heads = {
  title: "Heads",
  has: () => true,
  show(main) {
    const attn = attention(),
      heads = attn.shape[1];
    state.layer = Math.min(state.layer, attn.shape[0] - 1);
    state.heads = state.heads.filter((head) => head < heads);
    if (!state.heads.length) state.heads = [0];
    const options = Array.from({ length: heads }, (_, value) => ({
      value,
      text: String(value + 1),
      dot: headColor(value),
      title: data.kinds[attn.work[state.layer][value].kind],
    }));
    put(
      main,
      h("h2", {}, "Heads on the words"),
      h(
        "p",
        { class: "lead" },
        `In ${attentionName(attn).toLowerCase()}, ${attentionHelp[`${attn.stack}.${attn.kind}`]}. ` +
          `Point at a word, or step to it with the arrow keys.`,
      ),
      h(
        "div",
        { class: "controls" },
        attentionPicker(),
        layerPicker(),
        segmented(
          "Heads",
          [...options, { value: "all", text: "all" }],
          state.heads.length === heads ? [...state.heads, "all"] : state.heads,
          toggleHead,
        ),
        h(
          "label",
          { class: "toggle" },
          h("input", {
            type: "checkbox",
            id: "several",
            checked: state.several,
            onchange: (event) =>
              change({
                several: event.target.checked,
                heads: event.target.checked ? state.heads : state.heads.slice(0, 1),
              }),
          }),
          "several at once",
        ),
        h(
          "label",
          { class: "toggle" },
          h("input", {
            type: "checkbox",
            id: "join",
            checked: state.words,
            onchange: (event) => change({ words: event.target.checked, token: 0 }),
          }),
          "join pieces into words",
        ),
      ),
      pair({
        rows: labels(attn.rows),
        columns: labels(attn.columns),
        next: attn.rows === "target" && !state.words ? nextWords() : null,
        heads: state.heads.map((head) => ({
          color: headColor(head),
          name: `head ${head + 1}`,
          rows: weights(state.attention, state.layer, head),
        })),
        mean: meanWeights(state.attention, state.layer, state.heads),
        titles:
          attn.rows === "source"
            ? ["looks from", "looks at"]
            : attn.columns === "source"
              ? ["output so far ▸ next", "source"]
              : ["looks from ▸ next", "looks at"],
        about: aboutHeads(attn),
      }),
    );
  },
};

function toggleHead(head, event) {
  const all = attention().shape[1];
  if (head === "all") {
    const allSelected = state.heads.length === all;
    return change({ several: !allSelected, heads: allSelected ? [state.heads[0]] : Array.from({ length: all }, (_, i) => i) });
  }
  if (!state.several && !event.shiftKey) return change({ heads: [head] });
  const without = state.heads.filter((other) => other !== head);
  if (state.heads.includes(head)) return change({ heads: without.length ? without : [head] });
  return change({ several: true, heads: [...state.heads, head].sort((a, b) => a - b) });
}

// What a decoder wrote at each position.
function nextWords() {
  return data.outputs ? data.outputs.labels.map((id) => data.outputs.words[id]) : null;
}

function aboutHeads(attn) {
  if (state.heads.length > 1) return null;
  const head = state.heads[0],
    work = attn.work[state.layer][head];
  return h(
    "div",
    { class: "about" },
    h(
      "h3",
      {},
      `Layer ${state.layer + 1}, head ${head + 1}`,
      h("span", { class: "code" }, dotted(attn, state.layer, head)),
    ),
    h(
      "p",
      { class: "small" },
      h("i", { class: "sign", style: { background: workSigns[work.kind] } }),
      data.kinds[work.kind],
      `. Entropy ${figure(work.entropy)} bits (${percent(work.evenness)} of ` +
        `the most it could be), strongest weight ${figure(work.peak)} on average, `,
      attn.kind === "cross"
        ? `${figure(work.distance, 1)} tokens from the diagonal.`
        : `mean distance ${figure(work.distance, 1)} tokens.`,
    ),
    h(
      "div",
      { class: "shares" },
      Object.entries(work.shares).map(([name, share]) => [
        h("span", {}, `to the ${data.kinds[name]}`),
        h("div", { class: "meter" }, h("i", { style: { width: `${100 * share}%` } })),
        h("span", {}, percent(share)),
      ]),
    ),
    data.steps &&
      h(
        "p",
        { class: "onward" },
        h("button", { type: "button", onclick: () => change({ view: "steps" }) }, "Step through this head →"),
      ),
  );
}
