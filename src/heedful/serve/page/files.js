// Translates a file of any length: in requests within the limit, one after the other, retrying while the queue is full.

import { HttpError, post, send } from "./common.js";

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

// Groups lines into chunks of at most `limit` characters. A longer line is cut at a space.
export function chunks(text, limit) {
  const result = [];
  let chunk = "";
  for (let line of text.split(/(?<=\n)/)) {
    while (line.length > limit) {
      const space = line.lastIndexOf(" ", limit - 1);
      let cut = space > 0 ? space + 1 : limit;
      if (cut > 1 && /[\ud800-\udbff]/.test(line[cut - 1])) cut -= 1; // keep surrogate pairs together
      if (chunk) result.push(chunk);
      result.push(line.slice(0, cut));
      chunk = "";
      line = line.slice(cut);
    }
    if (chunk.length + line.length > limit) {
      result.push(chunk);
      chunk = "";
    }
    chunk += line;
  }
  return chunk ? [...result, chunk] : result;
}

export async function translateFile(text, html, model, glossary, settings, progress) {
  const parts = html ? [text] : chunks(text, Math.min(settings.charLimit, 4000)); // HTML is not cut
  let out = "";
  for (const [number, q] of parts.entries()) {
    const body = { q, source: model.source, target: model.target, format: html ? "html" : "text", glossary };
    for (let again = 0; ; again += 1) {
      try {
        out += (await (await post("/translate", body)).json()).translatedText;
        break;
      } catch (error) {
        if (!(error instanceof HttpError) || error.status !== 503 || again >= 20) throw error;
        await pause(Math.max(1, error.after));
      }
    }
    progress((number + 1) / parts.length);
  }
  return out;
}

// Translates a file in a format of its own (PO, XLIFF, SRT, …) on the server, and returns the translated file.
export async function translateDocument(file, model, glossary) {
  const form = new FormData();
  form.append("source", model.source);
  form.append("target", model.target);
  form.append("glossary", JSON.stringify(glossary));
  form.append("file", file, file.name);
  const { translatedFileUrl } = await (await send("/translate_file", form)).json();
  return (await fetch(new URL(translatedFileUrl).pathname)).blob();
}
