// Which source word each target word comes from, read off the cross-attention.

views.alignment = {
  title: "Alignment",
  has: () => Boolean(data.alignment),
  show(main) {
    const { sourceWords, targetWords, links, matrix, choice } = data.alignment;
    const set = new Set(links.map(([i, j]) => `${j} ${i}`));
    const rows = targetWords.map((_, j) => matrix.at(j));
    const pharaoh = links.map(([i, j]) => `${i}-${j}`).join(" ");
    const named = {
      source: sourceWords,
      target: targetWords,
      links: links.map(([i, j]) => ({
        source: sourceWords[i],
        target: targetWords[j],
        places: [i, j],
        weight: +figure(matrix.at(j)[i], 4),
      })),
      choice,
    };
    state.token = Math.min(state.token, targetWords.length - 1);
    put(
      main,
      h("h2", {}, "Word alignment"),
      h(
        "p",
        { class: "lead" },
        `Computed from ${choice.heads.length === 1 ? "one head" : `${choice.heads.length} heads`} of cross-attention (`,
        choice.heads.slice(0, 6).map((name, i) => [i ? ", " : "", h("code", {}, name)]),
        choice.heads.length > 6 ? ", …" : "",
        `), which agree best with the effect on the output of masking a source word` +
          `${choice.shift ? "; they attend to a word's source in the step after the word" : ""}.`,
      ),
      pair({
        rows: targetWords.map((text) => ({ text })),
        columns: sourceWords.map((text) => ({ text })),
        next: null,
        heads: [{ color: headColors[0], name: "alignment", rows }],
        mean: rows,
        titles: ["output", "source"],
        about: null,
        sure: (j, i) => set.has(`${j} ${i}`),
        verbs: ["comes from", "becomes"],
      }),
      h("h3", {}, "Save the alignment"),
      h("p", { class: "small" }, "Pharaoh format: source word – target word, both counted from 0."),
      h("code", { class: "pharaoh" }, pharaoh),
      h(
        "div",
        { class: "controls" },
        h(
          "button",
          {
            type: "button",
            id: "save-pharaoh",
            onclick: () => download("alignment.txt", "text/plain", `${pharaoh}\n`),
          },
          "Save as Pharaoh (.txt)",
        ),
        h(
          "button",
          {
            type: "button",
            id: "save-json",
            onclick: () => download("alignment.json", "application/json", JSON.stringify(named, null, 2)),
          },
          "Save as JSON",
        ),
        h(
          "button",
          {
            type: "button",
            id: "save-table",
            onclick: () =>
              download(
                "alignment.tsv",
                "text/tab-separated-values",
                [
                  "source\ttarget\tweight",
                  ...named.links.map((link) => `${link.source}\t${link.target}\t${link.weight}`),
                  "",
                ].join("\n"),
              ),
          },
          "Save as table (.tsv)",
        ),
      ),
    );
  },
};
