// A file, however long: in requests that the server takes, one after the other, waiting where it has too much to do.

import { Problem, post } from "./common.js";

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

// Lines together as far as a request may go. A line that is longer by itself is cut at a space, HTML is not cut at all.
export function pieces(text, most) {
  const found = [];
  let piece = "";
  for (let line of text.split(/(?<=\n)/)) {
    while (line.length > most) {
      const space = line.lastIndexOf(" ", most - 1);
      let cut = space > 0 ? space + 1 : most;
      if (cut > 1 && /[\ud800-\udbff]/.test(line[cut - 1])) cut -= 1; // no character is cut in two
      if (piece) found.push(piece);
      found.push(line.slice(0, cut));
      piece = "";
      line = line.slice(cut);
    }
    if (piece.length + line.length > most) {
      found.push(piece);
      piece = "";
    }
    piece += line;
  }
  return piece ? [...found, piece] : found;
}

export async function translateFile(text, html, model, settings, progress) {
  const parts = html ? [text] : pieces(text, Math.min(settings.charLimit, 4000));
  let out = "";
  for (const [number, q] of parts.entries()) {
    const body = { q, source: model.source, target: model.target, format: html ? "html" : "text" };
    for (let again = 0; ; again += 1) {
      try {
        out += (await (await post("/translate", body)).json()).translatedText;
        break;
      } catch (error) {
        if (!(error instanceof Problem) || error.status !== 503 || again >= 20) throw error;
        await pause(Math.max(1, error.after));
      }
    }
    progress((number + 1) / parts.length);
  }
  return out;
}
