// Words in two columns, with lines between them as strong as the weights; and the same weights as a heat map.

const pageSize = 120; // tokens of a side that are shown at once

// Two columns of words with lines between them, and the same as a heat map.
function pair({
  rows,
  columns,
  next,
  heads,
  mean,
  titles,
  about,
  sure = null,
  verbs = ["looks at", "is looked at by"],
}) {
  const pages = Math.ceil(Math.max(rows.length, columns.length) / pageSize);
  const page = Math.min(Math.floor(state.token / pageSize), pages - 1),
    start = page * pageSize;
  const from = rows.slice(start, start + pageSize),
    to = columns.slice(start, start + pageSize);
  const readout = h("p", { class: "readout", role: "status" });
  const canvas = h("canvas", { "aria-hidden": "true" });
  const token = (label, i, side) =>
    h(
      "button",
      {
        type: "button",
        class: `token ${label.special ? "special" : ""} ${label.inside ? "inside" : ""}`,
        "data-side": side,
        "data-place": i,
        "aria-pressed": side === "from" ? String(i === state.token) : null,
      },
      h(
        "span",
        { class: "shade", "aria-hidden": "true" },
        side === "to" && heads.map(({ color }) => h("i", { style: { background: color, opacity: "0" } })),
      ),
      h("bdi", {}, label.text),
      side === "from" && next && next[i] ? h("span", { class: "next" }, `▸ ${next[i]}`) : null,
    );
  const left = h(
    "ul",
    { class: "from", "aria-label": titles[0] },
    from.map((label, i) => h("li", {}, token(label, start + i, "from"))),
  );
  const right = h(
    "ul",
    { class: "to", "aria-label": titles[1] },
    to.map((label, j) => h("li", {}, token(label, start + j, "to"))),
  );
  const box = h(
    "div",
    { class: "lines" },
    h("h3", { class: "from" }, titles[0]),
    h("h3", { class: "to" }, titles[1]),
    left,
    right,
    canvas,
  );
  const heat = heatMap(rows, columns, mean, (i, j) => point(i, j, true));
  const faint = document.createElement("canvas"); // all lines, drawn once for a size
  const draw = (only) => drawLines({ canvas, faint, box, left, right, start, heads, only, sure });
  const point = (i, j, quiet) => {
    const query = i ?? null;
    shade(right, start, heads, query);
    draw(query === null ? (j === null || j === undefined ? null : { key: j }) : { query });
    heat.mark(i, j);
    readout.replaceChildren(...said(rows, columns, heads, mean, verbs, i, j));
    if (!quiet && query !== null) state.token = query;
  };
  for (const kind of ["pointerover", "focusin"])
    box.addEventListener(kind, (event) => {
      const target = event.target.closest(".token");
      if (target)
        target.dataset.side === "from" ? point(+target.dataset.place, null) : point(null, +target.dataset.place);
    });
  box.addEventListener("click", (event) => {
    const target = event.target.closest(".token[data-side=from]");
    if (!target) return;
    for (const token of left.querySelectorAll(".token")) token.setAttribute("aria-pressed", String(token === target));
    state.token = +target.dataset.place;
    remembered();
  });
  box.addEventListener("pointerleave", () => point(state.token, null));
  const tokens = [...left.querySelectorAll(".token")];
  roving(left, tokens, Math.max(0, Math.min(state.token - start, tokens.length - 1)));
  roving(right, [...right.querySelectorAll(".token")]);
  whenShown(box, () => point(Math.min(state.token, rows.length - 1), null));
  return h(
    "div",
    {},
    pages > 1 &&
      h(
        "div",
        { class: "pager" },
        h(
          "button",
          { type: "button", disabled: page === 0, onclick: () => change({ token: start - pageSize }) },
          "← before",
        ),
        `Tokens ${start + 1} to ${Math.min(start + pageSize, Math.max(rows.length, columns.length))} ` +
          `of ${Math.max(rows.length, columns.length)}`,
        h(
          "button",
          { type: "button", disabled: page === pages - 1, onclick: () => change({ token: start + pageSize }) },
          "after →",
        ),
      ),
    h("div", { class: "pair" }, h("div", {}, readout, box), h("div", {}, about, heat.element, scale())),
  );
}

function said(rows, columns, heads, mean, verbs, i, j) {
  const quoted = (label) => h("bdi", { class: "code" }, `“${label.text}”`);
  if (i !== null && i !== undefined && j !== null && j !== undefined && columns[j] && rows[i]) {
    return [
      quoted(rows[i]),
      ` ${verbs[0]} `,
      quoted(columns[j]),
      ": ",
      h("b", {}, figure(mean[i][j], 3)),
      heads.length > 1
        ? ` on average (${heads.map(({ name, rows: w }) => `${name} ${figure(w[i][j])}`).join(", ")})`
        : "",
    ];
  }
  if (i !== null && i !== undefined && rows[i]) {
    const best = [...mean[i].keys()]
      .sort((a, b) => mean[i][b] - mean[i][a])
      .slice(0, 3)
      .filter((k) => mean[i][k] >= 0.01);
    return [
      quoted(rows[i]),
      ` ${verbs[0]} `,
      best.length
        ? best.flatMap((k, n) => [n ? ", " : "", quoted(columns[k]), " ", h("b", {}, figure(mean[i][k]))])
        : "everything a little",
    ].flat();
  }
  if (columns[j]) {
    const best = [...mean.keys()]
      .sort((a, b) => mean[b][j] - mean[a][j])
      .slice(0, 3)
      .filter((k) => mean[k][j] >= 0.01);
    return best.length
      ? [
          quoted(columns[j]),
          ` ${verbs[1]} `,
          best.flatMap((k, n) => [n ? ", " : "", quoted(rows[k]), " ", h("b", {}, figure(mean[k][j]))]),
        ].flat()
      : ["hardly anything looks at ", quoted(columns[j])];
  }
  return [];
}

// Only the opacity changes, so that nothing has to be laid out anew.
function shade(list, start, heads, query) {
  list.querySelectorAll(".shade").forEach((holder, index) =>
    heads.forEach(({ rows }, number) => {
      const weight = query !== null && rows[query] ? rows[query][start + index] : 0;
      holder.children[number].style.opacity = String(0.75 * scaled(weight));
    }),
  );
}

function drawLines({ canvas, faint, box, left, right, start, heads, only, sure }) {
  const lists = [left, right].map((list) => [...list.children]);
  if (!lists[0].length || !lists[1].length) return;
  const home = box.getBoundingClientRect(),
    a = left.getBoundingClientRect(),
    b = right.getBoundingClientRect();
  const top = Math.min(a.top, b.top) - home.top,
    height = Math.max(a.bottom, b.bottom) - home.top - top,
    width = b.left - a.right;
  canvas.style.left = `${a.right - home.left}px`;
  canvas.style.top = `${top}px`;
  const step = lists[0].length > 1 ? lists[0][1].offsetTop - lists[0][0].offsetTop : 26;
  const middle = (i) => i * step + step / 2 - 1;
  const draw = (context, only) => {
    context.lineCap = "round";
    const many = lists[0].length * heads.length > 400;
    heads.forEach(({ color, rows }, number) => {
      context.strokeStyle = color;
      const beside = Math.max(-7, Math.min(7, 2.4 * (number - (heads.length - 1) / 2))); // heads do not hide each other
      for (let i = 0; i < lists[0].length; i++) {
        if (only && only.query !== undefined && only.query !== start + i) continue;
        const row = rows[start + i];
        for (let j = 0; j < lists[1].length; j++) {
          if (only && only.key !== undefined && only.key !== start + j) continue;
          const weight = row[start + j];
          if (weight < (only ? 0.01 : many ? 0.2 : 0.04) || (sure && !sure(start + i, start + j))) continue;
          context.globalAlpha = sure ? 0.85 : Math.min(1, 0.08 + 0.92 * weight);
          context.lineWidth = sure ? 2.4 : 0.8 + 3.4 * weight;
          context.beginPath();
          context.moveTo(2, middle(i) + beside);
          context.bezierCurveTo(
            width * 0.45,
            middle(i) + beside,
            width * 0.55,
            middle(j) + beside,
            width - 2,
            middle(j) + beside,
          );
          context.stroke();
        }
      }
    });
  };
  sharp(canvas, width, height, (context) => {
    if (faint.style.width !== `${width}px`) sharp(faint, width, height, (all) => draw(all, null));
    context.globalAlpha = only === null ? 1 : dark() ? 0.4 : 0.25;
    context.drawImage(faint, 0, 0, width, height);
    if (only !== null) draw(context, only);
  });
}

function scale() {
  const canvas = h("canvas", { "aria-hidden": "true" });
  sharp(canvas, 180, 12, (context, width, height) => {
    for (let x = 0; x < width; x++) {
      context.fillStyle = `rgb(${ramp()[Math.round((255 * x) / (width - 1))].map(Math.round).join()})`;
      context.fillRect(x, 0, 1, height);
    }
  });
  return h(
    "div",
    { class: "scale" },
    "0",
    canvas,
    "1",
    h("span", {}, "square-root scale: a quarter of the way is 0.06, half is 0.25"),
  );
}
