// Formulas of ours as MathML, never text of a user: `w = softmax( frac{q · k}{sqrt{d_k}} )`.
// Letters are names, `_` and `^` lower and raise what follows, `{}` hold together, `~` is a gap.

function formula(text) {
  const tokens = text.match(/[\p{L}′⊤]+|\d+|[^\s]/gu);
  const holder = h("div", { class: "formula" });
  holder.innerHTML = `<math display="block">${several(tokens)}</math>`;
  return holder;
}

function several(tokens) {
  const parts = [];
  while (tokens.length && tokens[0] !== "}") {
    let part = single(tokens);
    for (const [sign, tag] of [
      ["_", "msub"],
      ["^", "msup"],
    ]) {
      if (tokens[0] !== sign) continue;
      tokens.shift();
      part = `<${tag}>${part}${single(tokens)}</${tag}>`;
    }
    parts.push(part);
  }
  return `<mrow>${parts.join("")}</mrow>`;
}

function single(tokens) {
  const token = tokens.shift();
  if (token === "{") {
    const inside = several(tokens);
    tokens.shift();
    return inside;
  }
  if (token === "frac") return `<mfrac>${single(tokens)}${single(tokens)}</mfrac>`;
  if (token === "sqrt") return `<msqrt>${single(tokens)}</msqrt>`;
  if (token === "~") return `<mspace width="0.7em"/>`;
  if (token === "∑") {
    tokens.shift(); // the sign in front of what it runs over
    return `<munder><mo>∑</mo>${single(tokens)}</munder>`;
  }
  const tag = /^\p{L}/u.test(token) ? "mi" : /^\d/.test(token) ? "mn" : "mo";
  return `<${tag}>${token}</${tag}>`;
}
