// A matrix with words at its edges: colors, values where there is room, and a cross under the pointer.

const lean = Math.PI / 3.2, // of the words above the columns
  longest = 105; // pixels of a label
const labelFont = (size) => `${size}px system-ui, sans-serif`;
const ruler = document.createElement("canvas").getContext("2d");
function widest(labels) {
  ruler.font = labelFont(13);
  return Math.min(longest, Math.max(...labels.map(({ text }) => ruler.measureText(text).width)));
}

function heatMap(rows, columns, values, pointed) {
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "heat map of the weights" });
  const element = h("div", { class: "heat" }, canvas);
  const picture = mapImage(values);
  let marked = [null, null],
    place = null;

  function layout() {
    const room = Math.max(260, element.clientWidth || 520);
    const worded = columns.length <= 80 && rows.length <= 80;
    const left = worded ? Math.min(widest(rows) + 10, room * 0.3) : 34,
      top = worded ? Math.sin(lean) * widest(columns) + 19 : 24,
      right = worded ? Math.cos(lean) * widest(columns.slice(-1)) + 4 : 3; // where the last word leans out
    const cell = Math.max(worded ? 9 : 0.2, Math.min(38, (room - left - right) / columns.length));
    const down = worded ? cell : Math.min(38, (room - left - right) / Math.max(rows.length, columns.length));
    return {
      left,
      top,
      cell,
      down,
      worded,
      width: left + cell * columns.length + right,
      height: top + down * rows.length + 3,
    };
  }

  function draw() {
    place = layout();
    const { left, top, cell, down, worded, width, height } = place;
    const style = getComputedStyle(document.documentElement),
      ink = style.getPropertyValue("--ink"),
      soft = style.getPropertyValue("--soft");
    sharp(canvas, width, height, (context) => {
      context.imageSmoothingEnabled = false;
      context.drawImage(picture, left, top, cell * columns.length, down * rows.length);
      context.strokeStyle = style.getPropertyValue("--line");
      context.strokeRect(left - 0.5, top - 0.5, cell * columns.length + 1, down * rows.length + 1);
      context.textBaseline = "middle";
      if (worded) edges(context, ink, soft);
      if (cell >= 27) numbers(context);
      const [i, j] = marked;
      context.strokeStyle = style.getPropertyValue("--warm");
      context.lineWidth = 2;
      if (i !== null && i < rows.length) context.strokeRect(left, top + i * down, cell * columns.length, down);
      if (j !== null && j < columns.length) context.strokeRect(left + j * cell, top, cell, down * rows.length);
    });
  }

  function edges(context, ink, soft) {
    const { left, top, cell, down } = place,
      size = Math.max(8, Math.min(13, cell - 1));
    context.font = labelFont(size);
    rows.forEach(({ text }, i) => {
      context.textAlign = "right";
      context.fillStyle = marked[0] === i ? ink : soft;
      context.fillText(isolated(fitting(context, text, left - 8)), left - 5, top + (i + 0.5) * down);
    });
    columns.forEach(({ text }, j) => {
      context.save();
      context.translate(left + (j + 0.5) * cell, top - 5);
      context.rotate(-lean);
      context.textAlign = "left";
      context.fillStyle = marked[1] === j ? ink : soft;
      context.fillText(isolated(fitting(context, text, longest)), 0, 0);
      context.restore();
    });
  }

  function numbers(context) {
    const { left, top, cell, down } = place;
    context.font = `${cell >= 34 ? 11 : 9.5}px system-ui, sans-serif`;
    context.textAlign = "center";
    values.forEach((row, i) =>
      row.forEach((weight, j) => {
        if (weight < 0.005) return;
        context.fillStyle = onWeight(weight);
        context.fillText(weight.toFixed(2).replace(/^0/, ""), left + (j + 0.5) * cell, top + (i + 0.5) * down + 0.5);
      }),
    );
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - box.left - place.left) / place.cell),
      i = Math.floor((event.clientY - box.top - place.top) / place.down);
    return i >= 0 && j >= 0 && i < rows.length && j < columns.length ? [i, j] : null;
  }
  canvas.addEventListener("pointermove", (event) => {
    const cell = under(event);
    if (cell) pointed(...cell);
  });
  canvas.addEventListener("pointerdown", (event) => {
    const cell = under(event);
    if (cell) {
      state.token = cell[0];
      pointed(...cell);
      remembered();
    }
  });
  canvas.addEventListener("keydown", (event) => {
    const [di, dj] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] || [];
    if (di === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const bound = (x, most) => Math.min(Math.max(x, 0), most - 1);
    pointed(bound((marked[0] ?? 0) + di, rows.length), bound((marked[1] ?? 0) + dj, columns.length));
  });
  whenShown(element, draw);
  return {
    element,
    draw,
    mark(i, j) {
      marked = [i ?? null, j ?? null];
      if (place) draw();
    },
  };
}

// A word in its own direction: without first-strong isolation, the full stop after a Hebrew word is drawn on its right.
const isolated = (text) => `\u2068${text}\u2069`;

function fitting(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

// Draw once the element is in the page, and again whenever its width changes.
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (!contentRect.width || target.drawnAt === contentRect.width) continue;
    target.drawnAt = contentRect.width;
    target.redraw();
  }
});
function whenShown(element, draw) {
  element.redraw = draw;
  sizes.observe(element);
}
