// Memory networks: which sentence is read at which hop.

views.hops = {
  title: "Hops",
  has: () => Boolean(data.hops),
  show(main) {
    const { sentences, question, answer } = data.hops;
    const cell = (weight) =>
      h("td", { style: { background: weightColor(weight), color: onWeight(weight) } }, percent(weight));
    put(
      main,
      h("h2", {}, "Which sentence is read at which hop"),
      h(
        "p",
        { class: "lead" },
        "At each hop (a column) the question weighs all sentences, and what it reads is added to it for the next hop. ",
        "The weights of a hop add up to 100 %.",
      ),
      h(
        "table",
        { class: "hops" },
        h("tr", {}, h("th", {}, "sentence"), sentences[0].weights.map((_, hop) => h("th", {}, `hop ${hop + 1}`))),
        sentences.map(({ text, weights }) => h("tr", {}, h("td", {}, text), weights.map(cell))),
      ),
      h("p", {}, "Question: ", h("strong", {}, question)),
      answer !== null && h("p", {}, "Answer: ", h("strong", {}, answer)),
    );
  },
};
