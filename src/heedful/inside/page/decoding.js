// The beam as a tree, the hypotheses that came out of it, and the top candidates for each output word.

views.decoding = {
  get title() {
    return data && !data.sides.target ? "Predictions" : "Decoding";
  },
  has: () => Boolean(data.tree || data.outputs),
  show(main) {
    put(
      main,
      h(
        "h2",
        {},
        data.tree
          ? "How the output was found"
          : data.sides.target
            ? "What the model predicts"
            : "What the model predicts at each position",
      ),
    );
    if (data.tree)
      put(
        main,
        h(
          "p",
          { class: "lead" },
          `At every step the model extends each hypothesis in its beam ` +
            `by every token of the vocabulary; the ${data.model.beam} ` +
            `best go on. Percentages are the probability of the token ` +
            `itself; hypotheses are compared by the sum of logarithms.`,
        ),
        treeLegend(),
        tree(),
        h(
          "p",
          { class: "readout", id: "node-readout", role: "status" },
          "Point at a token, or step through the tree with the arrow keys.",
        ),
        hypotheses(),
      );
    else if (data.sides.target)
      put(
        main,
        h(
          "p",
          { class: "lead" },
          "The output was given, not searched for; below are the tokens that the model would predict at each position.",
        ),
      );
    else
      put(
        main,
        h(
          "p",
          { class: "lead" },
          "The tokens that the model predicts at each position. It sees the token itself unless it is masked.",
        ),
      );
    if (data.outputs) put(main, candidates());
  },
};

function treeLegend() {
  const toggle = h(
    "label",
    { class: "toggle" },
    h("input", {
      type: "checkbox",
      id: "losers",
      checked: state.losers,
      onchange: (event) => change({ losers: event.target.checked }),
    }),
    "show the alternatives that lost",
  );
  const key = (style, text) => h("span", {}, h("i", { style }), text);
  return h(
    "div",
    { class: "legend" },
    key({ borderColor: "var(--accent)", background: "var(--accent-soft)", borderWidth: "2px" }, "the output"),
    key({ borderColor: "var(--soft)" }, "stayed in the beam"),
    key({ borderColor: "var(--warm)" }, "ended: a hypothesis"),
    key({ borderStyle: "dashed" }, "lost"),
    toggle,
  );
}

function tree() {
  const across = 142,
    down = 34,
    wide = 122,
    tall = 27,
    left = 70;
  const nodes = data.tree.nodes
    .map((node, index) => ({ ...node, index }))
    .filter((node) => state.losers || node.best || node.fate === "live" || node.fate === "ended");
  const counts = [];
  for (const node of nodes) {
    node.x = left + node.step * across;
    node.y = 12 + (counts[node.step] ?? 0) * down;
    counts[node.step] = (counts[node.step] ?? 0) + 1;
  }
  const places = new Map(nodes.map((node) => [node.index, node]));
  const height = 24 + Math.max(1, ...counts.filter(Boolean)) * down,
    width = left + data.tree.steps * across + 10;
  const root = { x: left - across + 60, y: 12, root: true };
  const svg = s("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    "aria-label": "Beam search as a tree",
  });
  for (const node of nodes) {
    const from = places.get(node.parent) || root,
      x = from.root ? 46 : from.x + wide,
      y = from.y + tall / 2,
      to = node.y + tall / 2;
    svg.append(
      s("path", {
        class: `edge ${node.best ? "best" : node.fate}`,
        d: `M${x},${y} C${x + 12},${y} ${node.x - 12},${to} ${node.x},${to}`,
      }),
    );
  }
  svg.append(
    s(
      "g",
      { class: "node best" },
      s("rect", { x: 6, y: 12, width: 40, height: tall, rx: 6 }),
      s("text", { x: 26, y: 12 + tall / 2 + 4, "text-anchor": "middle" }, "start"),
    ),
  );
  const groups = nodes.map((node) => {
    const chance = percent(Math.exp(node.logProb));
    ruler.font = "600 13px system-ui, sans-serif";
    const text = fitting(ruler, node.text, wide - 62);
    const fate = {
      live: "stayed in the beam",
      ended: `ended, final score ${figure(node.final, 3)}`,
      lost: "lost",
      open: "still in the beam when the search was over",
    }[node.fate];
    const description =
      `${node.text}: ${chance}, sum of logarithms ${figure(node.score, 3)}, ` +
      `${fate}${node.best ? ", part of the output" : ""}`;
    const group = s(
      "g",
      {
        class: `node ${node.fate} ${node.best ? "best" : ""}`,
        role: "img",
        "aria-label": description,
        "data-node": node.index,
      },
      s("rect", { x: node.x, y: node.y, width: wide, height: tall, rx: 6 }),
      s("text", { x: node.x + 8, y: node.y + tall / 2 + 4.5 }, text),
      s("text", { class: "p", x: node.x + wide - 7, y: node.y + tall / 2 + 4, "text-anchor": "end" }, chance),
    );
    for (const kind of ["pointerover", "focus"])
      group.addEventListener(kind, () => {
        document.getElementById("node-readout").textContent = description;
      });
    return group;
  });
  svg.append(...groups);
  walkTree(svg, nodes, groups);
  return h("div", { class: "tree" }, svg);
}

// Left and right follow the branch, up and down stay in the step.
function walkTree(svg, nodes, groups) {
  groups.forEach((group, i) => group.setAttribute("tabindex", i === 0 ? 0 : -1));
  svg.addEventListener("keydown", (event) => {
    const here = groups.indexOf(document.activeElement);
    if (here < 0 || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
    const node = nodes[here];
    const next = {
      ArrowRight: () =>
        nodes.findIndex(
          (candidate) =>
            candidate.parent === node.index &&
            (candidate.best || !nodes.some((other) => other.parent === node.index && other.best)),
        ),
      ArrowLeft: () => nodes.findIndex((candidate) => candidate.index === node.parent),
      ArrowDown: () => (nodes[here + 1] && nodes[here + 1].step === node.step ? here + 1 : -1),
      ArrowUp: () => (nodes[here - 1] && nodes[here - 1].step === node.step ? here - 1 : -1),
    }[event.key]();
    if (next < 0) return;
    groups[here].setAttribute("tabindex", -1);
    groups[next].setAttribute("tabindex", 0);
    groups[next].focus();
    groups[next].scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}

function hypotheses() {
  const { hypotheses, length_penalty: alpha, length_penalty_form: form, nodes } = data.tree;
  const ended = nodes.filter(({ fate }) => fate === "ended").length;
  return h(
    "section",
    {},
    h("h3", {}, "Finished hypotheses"),
    h(
      "p",
      { class: "small" },
      `${ended} ${ended === 1 ? "hypothesis" : "hypotheses"} finished. ` +
        `Length penalty: the sum of log-probabilities is divided by ${form === "power" ? "tokens" : "((5 + tokens) / 6)"}`,
      h("sup", {}, String(alpha)),
      ".",
    ),
    h(
      "div",
      { class: "heat" },
      h(
        "table",
        { class: "text-left" },
        h(
          "tr",
          {},
          ["", "hypothesis", "tokens", "sum of logarithms", "score"].map((name) => h("th", {}, name)),
        ),
        hypotheses.map((hypothesis, i) =>
          h(
            "tr",
            { class: i === 0 ? "said" : "" },
            h("td", {}, String(i + 1)),
            h("td", { class: "prose" }, hypothesis.text ? h("bdi", {}, hypothesis.text) : h("i", {}, "nothing")),
            h("td", {}, hypothesis.tokens),
            h("td", {}, figure(hypothesis.logProb, 3)),
            h("td", {}, figure(hypothesis.score, 3) + (hypothesis.finished ? "" : " (cut off)")),
          ),
        ),
      ),
    ),
  );
}

let candidatePages = 1;
function candidates() {
  const { ids, words, logProbs, ranks } = data.outputs,
    side = data.sides.target || data.sides.source,
    count = Math.min(ids.shape[0], 60 * candidatePages);
  const card = (t) => {
    const chances = probabilities(t, 18, 0),
      said = written(t);
    return h(
      "div",
      { class: "candidate" },
      h(
        "h3",
        {},
        h("bdi", {}, said !== undefined ? words[said] : data.sides.target ? `after “${side.pieces[t]}”` : side.pieces[t]),
        h(
          "span",
          {},
          said === undefined ? "" : `${percent(Math.exp(logProbs[t]))}${ranks[t] ? ` · no. ${ranks[t] + 1}` : ""}`,
        ),
      ),
      h(
        "ol",
        {},
        Array.from(ids.at(t).subarray(0, 5), (id, i) =>
          h(
            "li",
            { class: id === said ? "said" : "" },
            h("bdi", {}, words[id]),
            h("div", { class: "meter" }, h("i", { style: { width: `${100 * chances[i]}%` } })),
            h("span", {}, percent(chances[i])),
          ),
        ),
      ),
    );
  };
  return h(
    "section",
    {},
    h("h3", {}, data.sides.source && data.sides.target ? "Top candidates for each word of the output" : "Top candidates for each position"),
    h(
      "div",
      { class: "candidates" },
      Array.from({ length: count }, (_, t) => card(t)),
    ),
    count < ids.shape[0] &&
      h(
        "button",
        {
          type: "button",
          onclick: () => {
            candidatePages += 1;
            render();
          },
        },
        `Show more of ${ids.shape[0]}`,
      ),
  );
}
