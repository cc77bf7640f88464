// Speech: the spectrogram, each word under the sound that it came from, and cross-attention over time.

// ["decoder.2.cross.0", "decoder.2.cross.1"] -> ["decoder.2.cross.0–1"]
const headRanges = (heads) =>
  [...new Set(heads.map((head) => head.replace(/\.\d+$/, "")))].map((name) => {
    const numbers = heads.filter((head) => head.startsWith(`${name}.`)).map((head) => head.split(".").pop());
    return numbers.length > 1 ? `${name}.${numbers[0]}–${numbers.at(-1)}` : `${name}.${numbers[0]}`;
  });

views.sound = {
  title: "Sound",
  has: () => Boolean(data.sound),
  show(main) {
    const { spectrogram, seconds, weights, tokens, words, heads } = data.sound;
    const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "spectrogram with cross-attention" });
    const holder = h("div", { class: "heat" }, canvas);
    state.token = Math.min(state.token, tokens.length - 1);
    if (!("start" in tokens[state.token])) state.token = Math.max(0, tokens.findIndex((token) => "start" in token));
    put(
      main,
      h("h2", {}, "Where each word was heard"),
      h(
        "p",
        { class: "lead" },
        "Above: the log-mel spectrogram, low frequencies at the bottom, and each word under its sound. ",
        "Below: for each token (a row), the cross-attention over time, the mean of the heads in the upper half of the decoder (",
        headRanges(heads).map((name, i) => [i ? ", " : "", h("code", {}, name)]),
        "), by which the words are timed. Point at a row to see its sound.",
      ),
      holder,
    );
    const [frames, bins] = spectrogram.shape,
      sound = Array.from({ length: bins }, (_, bin) =>
        Float32Array.from({ length: frames }, (_, frame) => (spectrogram.at(frame)[bins - 1 - bin] + 1) / 2.2),
      ),
      rows = tokens.map((_, i) => {
        const row = weights.at(i),
          most = Math.max(...row, 1e-6);
        return row.map((weight) => weight / most);
      });
    const pictures = [
      image(sound, bins, frames, (x) => ramp()[Math.round(255 * Math.min(Math.max(x, 0), 1))], 2000),
      image(rows, rows.length, rows[0].length, (w) => ramp()[Math.round(255 * scaled(w))], 2000),
    ];
    const left = 90,
      right = 22, // half a label of the time axis
      high = 200,
      band = 70,
      line = 17;
    const draw = () => {
      const width = Math.max(320, (holder.clientWidth || 900) - 2),
        room = width - left - right,
        at = (time) => left + (room * time) / seconds,
        top = high + band;
      const style = getComputedStyle(document.documentElement),
        ink = style.getPropertyValue("--ink"),
        soft = style.getPropertyValue("--soft");
      sharp(canvas, width, top + line * rows.length + 22, (context) => {
        context.imageSmoothingEnabled = false;
        context.drawImage(pictures[0], left, 0, room, high);
        context.drawImage(pictures[1], left, top, room, line * rows.length);
        context.font = labelFont(12);
        context.textBaseline = "middle";
        const ends = [-1e9, -1e9, -1e9],
          labels = [],
          chosen = tokens[state.token],
          warm = style.getPropertyValue("--warm");
        for (const { text, start, end } of words) {
          const x = at(start),
            long = context.measureText(text).width,
            place = Math.min(x + 4, width - long), // not beyond the right edge
            level = ends.findIndex((right) => right < place - 4);
          context.fillStyle = chosen.start < end && start < chosen.end ? warm : ink;
          context.fillRect(x, high + 3, Math.max(1, at(end) - x - 2), 3);
          if (level < 0) continue;
          ends[level] = place + long;
          labels.push({ text, place, long, y: high + 18 + 18 * level, color: context.fillStyle });
          context.fillRect(x, high + 3, 1, 8 + 18 * level);
        }
        context.textAlign = "left";
        for (const { text, place, long, y, color } of labels) {
          context.clearRect(place - 2, y - 8, long + 4, 16); // lines to lower words pass behind
          context.fillStyle = color;
          context.fillText(text, place, y);
        }
        tokens.forEach(({ text }, i) => {
          context.fillStyle = i === state.token ? warm : ink;
          context.textAlign = "right";
          context.fillText(fitting(context, text, left - 12), left - 6, top + (i + 0.5) * line);
        });
        context.fillStyle = soft;
        context.textAlign = "center";
        const stride = [0.1, 0.2, 0.5, 1, 2, 5, 10].find((each) => (room * each) / seconds > 40) || 30;
        for (let time = 0; time <= seconds; time += stride)
          context.fillText(`${figure(time, stride < 1 ? 1 : 0)} s`, at(time), top + line * rows.length + 12);
        context.strokeStyle = warm;
        context.lineWidth = 2;
        context.strokeRect(left, top + state.token * line, room, line);
        if ("start" in chosen) context.strokeRect(at(chosen.start), 1, at(chosen.end) - at(chosen.start), high);
      });
    };
    canvas.addEventListener("pointermove", (event) => {
      const row = Math.floor((event.clientY - canvas.getBoundingClientRect().top - high - band) / line);
      if (row < 0 || row >= rows.length || row === state.token) return;
      state.token = row;
      draw();
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      state.token = Math.min(Math.max(state.token + step, 0), rows.length - 1);
      draw();
    });
    whenShown(holder, draw);
  },
};
