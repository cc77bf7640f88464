// Speech: the spectrogram, cross-attention over time, and each token under the sound that it came from.

views.sound = {
  title: "Sound",
  has: () => Boolean(data.sound),
  show(main) {
    const { spectrogram, seconds, weights, tokens, heads } = data.sound;
    const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "spectrogram with cross-attention" });
    const holder = h("div", { class: "heat" }, canvas);
    state.token = Math.min(state.token, tokens.length - 1);
    put(
      main,
      h("h2", {}, "Where each token was heard"),
      h(
        "p",
        { class: "lead" },
        "Above: the log-mel spectrogram, low frequencies at the bottom. Below: for each token (a row), the ",
        `cross-attention over time, the mean of ${heads.length} heads that move through the sound as the text does (`,
        heads.map((name, i) => [i ? ", " : "", h("code", {}, name)]),
        "). The words between stand at the place of a path that never goes back in time. ",
        "Point at a row to see its place.",
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
        const ends = [-1e9, -1e9, -1e9];
        tokens.forEach(({ text, seconds: time }, i) => {
          const x = at(time),
            long = context.measureText(text).width,
            start = Math.min(x, width - long), // not beyond the right edge
            level = ends.findIndex((end) => end < start - 4);
          context.fillStyle = i === state.token ? style.getPropertyValue("--warm") : ink;
          if (level >= 0) {
            context.textAlign = "left";
            context.fillText(text, start, high + 14 + 18 * level);
            ends[level] = start + long;
            context.fillRect(x, high, 1, 6 + 18 * level);
          }
          context.textAlign = "right";
          context.fillText(fitting(context, text, left - 12), left - 6, top + (i + 0.5) * line);
        });
        context.fillStyle = soft;
        context.textAlign = "center";
        const stride = [0.1, 0.2, 0.5, 1, 2, 5, 10].find((each) => (room * each) / seconds > 40) || 30;
        for (let time = 0; time <= seconds; time += stride)
          context.fillText(`${figure(time, stride < 1 ? 1 : 0)} s`, at(time), top + line * rows.length + 12);
        context.strokeStyle = style.getPropertyValue("--warm");
        context.lineWidth = 2;
        context.strokeRect(left, top + state.token * line, room, line);
        const x = at(tokens[state.token].seconds);
        context.strokeRect(x, 0, 0.5, high);
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
