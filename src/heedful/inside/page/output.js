// The last stop: logits and probabilities, with temperature and top-k to move.

const sampling = { temperature: 18, top: 0 }; // places on the sliders: temperature 1, all tokens

// Probabilities of the kept tokens at a position; what is not kept has a sum for every temperature.
function probabilities(t, temperature = sampling.temperature, top = sampling.top) {
  const { logits, rest, temperatures } = data.outputs,
    values = logits.at(t),
    heat = temperatures[temperature];
  const powers = Array.from(values, (x, i) => (top && i >= top ? 0 : Math.exp((x - values[0]) / heat)));
  const total = powers.reduce((a, b) => a + b, 0) + (top ? 0 : Math.exp(rest.at(t)[temperature]));
  return powers.map((x) => x / total);
}

// The token that stands at a position, or was written there; a token that frames or hides an encoder's text is none.
const written = (t) => (data.sides.target || !data.sides.source.special[t] ? data.outputs.labels[t] : undefined);

function outputStop(attn, stack, t) {
  if (attn.stack === "encoder" && data.sides.target) {
    return stop(
      "The memory",
      "These vectors, one per source token, are the memory that the decoder's cross-attention reads.",
      null,
      strip("memory", stack.final.at(t)),
      h(
        "button",
        {
          type: "button",
          onclick: () =>
            change({ attention: data.attentions.findIndex(({ kind }) => kind === "cross"), token: 0, layer: 0 }),
        },
        "To cross-attention →",
      ),
    );
  }
  if (!data.outputs)
    return stop(
      "The result",
      "This encoder ends here: its hidden states are its output.",
      null,
      strip("hidden state", stack.final.at(t)),
    );
  const table = h("div"),
    next = attn.stack === "decoder";
  const draw = () => table.replaceChildren(candidateTable(t, 12));
  const { temperatures } = data.outputs,
    tops = [0, 1, 2, 3, 5, 10, 20, 50].filter((k) => k <= data.outputs.ids.shape[1]);
  const slider = (name, most, value, text, move) => {
    const shown = h("output", {}, text(value));
    return h(
      "label",
      {},
      name,
      h("input", {
        type: "range",
        min: 0,
        max: most,
        value,
        "aria-label": name,
        id: name.replace(/\W/g, ""),
        oninput: (event) => {
          move(+event.target.value);
          shown.textContent = text(+event.target.value);
          draw();
        },
      }),
      shown,
    );
  };
  draw();
  return stop(
    next ? "Logits and probabilities of the next token" : "Logits and probabilities of the token here",
    `The last vector is multiplied by the embedding of every token of the vocabulary; the softmax turns ` +
      `these logits into probabilities. ${next ? "A low temperature sharpens them; top-k keeps only the best." : ""}`,
    "p_i = frac{exp( ℓ_i / T )}{∑_j exp( ℓ_j / T )} , ~ ℓ = y E^⊤",
    strip("last vector", stack.final.at(t)),
    h(
      "div",
      { class: "sliders" },
      slider(
        "Temperature",
        temperatures.length - 1,
        sampling.temperature,
        (i) => temperatures[i].toFixed(2),
        (i) => {
          sampling.temperature = i;
        },
      ),
      slider(
        "Top-k",
        tops.length - 1,
        Math.max(0, tops.indexOf(sampling.top)),
        (i) => (tops[i] ? String(tops[i]) : "all"),
        (i) => {
          sampling.top = tops[i];
        },
      ),
    ),
    table,
  );
}

function candidateTable(t, count) {
  const { ids, logits, words, ranks } = data.outputs,
    chances = probabilities(t),
    said = written(t);
  const rest = Math.max(0, 1 - chances.slice(0, count).reduce((a, b) => a + b, 0));
  return h(
    "div",
    {},
    h(
      "table",
      { class: "chances" },
      h(
        "tr",
        {},
        h("th", {}, "token"),
        h("th", {}, "logit ℓ"),
        h("th", {}, "probability"),
        h("th", { class: "bar" }),
      ),
      Array.from(ids.at(t).subarray(0, count), (id, i) =>
        h(
          "tr",
          { class: id === said ? "said" : "" },
          h("td", {}, h("bdi", {}, words[id])),
          h("td", {}, figure(logits.at(t)[i])),
          h("td", {}, percent(chances[i])),
          h(
            "td",
            { class: "bar" },
            h("i", { style: { width: `${100 * chances[i]}%`, background: "var(--accent)" } }),
          ),
        ),
      ),
      h(
        "tr",
        {},
        h("td", {}, `${(data.model.vocabulary - Math.min(count, ids.shape[1])).toLocaleString("en")} others`),
        h("td", {}),
        h("td", {}, sampling.top && sampling.top <= count ? "0" : percent(rest)),
        h("td", { class: "bar" }),
      ),
    ),
    said !== undefined &&
      h(
        "p",
        { class: "small" },
        data.attentions[state.attention].stack === "encoder"
          ? "The token at this position is "
          : "The token generated here is ",
        h("bdi", { class: "code" }, words[said]),
        `, number ${ranks[t] + 1} of the list.`,
      ),
  );
}
