// The position scheme of the model.

let panelShown = 0;
const schemes = {
  sinusoidal: [
    "Sinusoidal",
    "Each position is a vector of sines and cosines, with high frequencies on the left and low ones on the " +
      "right. It is added to the embedding. The dot product of two such vectors depends only on their distance.",
    "P_{pos , 2 i} = sin( pos / 10000^{2 i / d} ) , ~ P_{pos , 2 i + 1} = cos( … )",
  ],
  learned: [
    "Learned",
    "Each position has a learned vector, which is added to the embedding.",
    "x = E_id + P_pos",
  ],
  rotary: [
    "Rotary (RoPE)",
    "Each pair of query and key dimensions is rotated by an angle proportional to position. Their dot " +
      "product then depends on the distance. The figure shows the vector (1, 0, 1, 0, …) rotated by each position.",
    "q · k → q^⊤ R_{j − i} k",
  ],
  alibi: [
    "ALiBi",
    "Embeddings are unchanged. From each score the distance " +
      "is subtracted, times a slope that differs by head.",
    "score = frac{q · k}{sqrt{d_k}} − m_head · | i − j |",
  ],
  relative: [
    "Relative",
    "Embeddings are unchanged. Each distance has a learned vector, which is added to the key.",
    "score = frac{q · ( k + a_{j − i} )}{sqrt{d_k}}",
  ],
  syntax: [
    "Syntax",
    "In the encoder, the position of a token in the sequence and its depth in the dependency tree are combined and " +
      "added to the embedding. Each relative position in the tree has a learned vector, which is added to the key. " +
      "The decoder, whose text has no tree, has sinusoidal positions.",
    "x = E_id + tanh( U p_pos + V p_depth ) , ~ score = frac{q · ( k + a_{i j} )}{sqrt{d_k}}",
  ],
};

views.positions = {
  title: "Positions",
  has: () => Boolean(data.positions),
  show(main) {
    const { scheme, panels } = data.positions,
      [title, text, equation] = schemes[scheme];
    const panel = panels[Math.min(panelShown, panels.length - 1)];
    const by =
      { alibi: "distance × head: what is added to a score", relative: "distance × dimension" }[scheme] ||
      "position × dimension";
    const of = scheme === "alibi" || scheme === "relative" ? "distances" : "positions";
    const alike =
      { alibi: "what is added to the score of query and key", relative: "dot products between distances" }[scheme] ||
      "dot products between positions";
    put(
      main,
      h("h2", {}, `Positions: ${title.toLowerCase()}`),
      h("p", { class: "lead" }, text),
      formula(equation),
      panels.length > 1 &&
        h(
          "div",
          { class: "controls" },
          segmented(
            "Of",
            panels.map(({ name }, value) => ({ value, text: name })),
            panels.indexOf(panel),
            (value) => {
              panelShown = value;
              render();
            },
          ),
        ),
      h(
        "div",
        { class: "two" },
        plate(by, panel.table, panel.rows, null, of),
        plate(alike, panel.matrix, panel.rows, panel.rows, of),
      ),
    );
  },
};

function plate(title, numbers, rows, columns, by) {
  const [height, width] = numbers.shape,
    lines = Array.from({ length: height }, (_, i) => numbers.at(i));
  const most = numbers.values.reduce((best, x) => Math.max(best, Math.abs(x)), 1e-9);
  const [least, best] = [
    numbers.values.reduce((a, b) => Math.min(a, b)),
    numbers.values.reduce((a, b) => Math.max(a, b)),
  ];
  const signed = least < 0 && best > 0;
  const color = signed
    ? (x) => signColor(x / most)
    : (x) => ramp()[Math.round((255 * (x - least)) / (best - least || 1))];
  const picture = image(lines, height, width, color, 1024);
  const canvas = h("canvas", { role: "img", tabindex: "0", "aria-label": title }),
    holder = h("div", { class: "heat" }, canvas),
    readout = h(
      "p",
      { class: "readout small", role: "status" },
      `${columns ? `Rows and columns are ${by}` : `Rows are ${by}`} ${rows[0]} to ${rows[height - 1]}. ` +
        `Values from ${figure(least)} to ${figure(best)}${signed ? "; orange is above zero, blue below" : ""}.`,
    );
  let here = [0, 0];
  const tell = (i, j) => {
    here = [i, j];
    readout.textContent =
      `${columns ? `${rows[i]} and ${columns[j]}` : `${rows[i]}, number ${j + 1}`}: ` + `${figure(lines[i][j], 3)}`;
  };
  const draw = () => {
    const room = Math.max(240, holder.clientWidth),
      tall = columns ? room : Math.min(room, Math.max(200, height * 5));
    sharp(canvas, room, tall, (context) => {
      context.imageSmoothingEnabled = false;
      context.drawImage(picture, 0, 0, room, tall);
    });
  };
  const bound = (x, size) => Math.min(Math.max(Math.floor(x), 0), size - 1);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    tell(
      bound(((event.clientY - box.top) / box.height) * height, height),
      bound(((event.clientX - box.left) / box.width) * width, width),
    );
  });
  canvas.addEventListener("keydown", (event) => {
    const [di, dj] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] || [];
    if (di === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    tell(bound(here[0] + di, height), bound(here[1] + dj, width));
  });
  whenShown(holder, draw);
  return h("section", {}, h("h3", {}, `${title[0].toUpperCase()}${title.slice(1)}`), holder, readout);
}
