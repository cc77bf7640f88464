// Mixtures of experts: which experts each token goes to, layer by layer.

// The experts of a token in a layer, the largest gate first: a dot in the color of the expert, its number, its gate.
function expertsOf({ experts, gates }, t) {
  const shares = gates.at(t);
  return Array.from(experts.at(t), (expert, i) =>
    h(
      "span",
      { class: "expert" },
      h("i", { class: "dot", style: { background: headColor(expert) } }),
      `${expert + 1} · ${percent(shares[i] / gates.most)}`,
    ),
  );
}

// The share of tokens that each expert of a layer gets, the busiest first.
function expertLoad({ experts }) {
  const counts = new Map(),
    tokens = experts.shape[0];
  for (const expert of experts.values) counts.set(expert, (counts.get(expert) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([expert, count]) => [expert, count / tokens]);
}

function expertTable({ stack, side, layers }) {
  const { pieces } = data.sides[side];
  return h(
    "section",
    {},
    h("h3", {}, `Of the ${stack}`),
    h(
      "div",
      { class: "wide" },
      h(
        "table",
        { class: "experts text-left" },
        h("tr", {}, h("th", {}, "token"), layers.map((_, layer) => h("th", {}, `layer ${layer + 1}`))),
        pieces.map((text, t) =>
          h("tr", {}, h("td", {}, h("bdi", {}, text)), layers.map((layer) => h("td", {}, expertsOf(layer, t)))),
        ),
        h(
          "tr",
          {},
          h("th", {}, "busiest"),
          layers.map((layer) => {
            const [[expert, share]] = expertLoad(layer);
            return h("th", {}, `${expert + 1}, with ${percent(share)} of the tokens`);
          }),
        ),
      ),
    ),
  );
}

views.experts = {
  title: "Experts",
  has: () => Boolean(data.experts),
  show(main) {
    put(
      main,
      h("h2", {}, "Which experts each token goes to"),
      h(
        "p",
        { class: "lead" },
        `Each layer has ${data.model.experts} feed-forward layers, the experts, numbered from 1. A gating network ` +
          "selects some of them for each token and weighs their outputs; these gates add up to 100 %. " +
          "An expert of a layer has nothing to do with the expert of the same number in another layer.",
      ),
      data.experts.map(expertTable),
    );
  },
};
