// Speech: a file or the microphone becomes text, which appears window by window.

import { copy, h, save, say, sayWhy, send, streamed } from "./common.js";

const RATE = 16000;

// Float samples -> a wav file of 16 bits, which every decoder reads.
function wav(samples) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  [[16, 16], [24, RATE], [28, 2 * RATE], [40, 2 * samples.length]].forEach(([at, value]) => view.setUint32(at, value, true));
  [[20, 1], [22, 1], [32, 2], [34, 16]].forEach(([at, value]) => view.setUint16(at, value, true));
  text(36, "data");
  samples.forEach((sample, i) => view.setInt16(44 + 2 * i, 32767 * Math.max(-1, Math.min(1, sample)), true));
  return new Blob([view], { type: "audio/wav" });
}

// What the browser recorded, in whichever format it prefers -> wav at 16 kHz.
async function asWav(recording) {
  const context = new OfflineAudioContext(1, RATE, RATE);
  const decoded = await context.decodeAudioData(await recording.arrayBuffer());
  return wav(decoded.getChannelData(0));
}

export function transcribing({ model }) {
  let recorder = null, abort = null;
  const area = h("textarea", { id: "transcript", "aria-label": "Transcript", placeholder: "Choose a recording, drop one here, or use the microphone", spellcheck: false });
  const player = h("audio", { controls: true, hidden: true, "aria-label": "Recording" });
  const input = h("input", { type: "file", id: "audio", class: "hidden", accept: "audio/*,.wav,.flac,.ogg,.mp3", onchange: () => input.files[0] && transcribe(input.files[0]) });
  const choose = h("button", { type: "button", class: "main", id: "choose", onclick: () => (abort ? abort.abort() : input.click()) }, "Choose a recording");
  const microphone = h("button", { type: "button", id: "microphone", onclick: () => (recorder ? recorder.stop() : record()) }, "Record");
  const element = h("div", {},
    h("div", { class: "page", ondragover: (event) => event.preventDefault(), ondrop: drop },
      h("div", { class: "head" }, h("strong", {}, model.name), choose, microphone, input,
        h("button", { type: "button", onclick: () => copy(area.value) }, "Copy"),
        h("button", { type: "button", onclick: () => save("transcript.txt", area.value) }, "Save")),
      player, area));

  function drop(event) {
    event.preventDefault();
    if (event.dataTransfer.files[0]) transcribe(event.dataTransfer.files[0]);
  }

  async function record() {
    microphone.disabled = true; // until the browser has asked for permission
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const chunks = [];
      recorder = new MediaRecorder(stream);
      recorder.ondataavailable = (event) => chunks.push(event.data);
      recorder.onstop = async () => {
        recorder = null;
        microphone.textContent = "Record";
        stream.getTracks().forEach((track) => track.stop());
        try {
          const blob = await asWav(new Blob(chunks));
          transcribe(new File([blob], "microphone.wav", { type: "audio/wav" }));
        } catch {
          say("Nothing was recorded; press Record, speak, and press Stop.", true);
        }
      };
      recorder.start();
      microphone.textContent = "Stop";
      player.hidden = true;
      area.value = "";
      say("Recording…");
    } catch {
      recorder = null;
      say("The microphone is not available here; a page needs https or localhost, and your permission.", true);
    }
    microphone.disabled = false;
  }

  async function transcribe(file) {
    abort?.abort();
    abort = new AbortController();
    const mine = abort;
    player.src = URL.createObjectURL(file);
    player.hidden = false;
    area.value = "";
    choose.textContent = "Stop";
    say(`Transcribing ${file.name}…`);
    const form = new FormData();
    form.append("file", file, file.name);
    form.append("model", model.name);
    form.append("stream", "true");
    try {
      const answer = await send("/v1/audio/transcriptions", form, mine.signal);
      for await (const event of streamed(answer)) {
        area.value = event.type === "transcript.text.done" ? event.text : area.value + event.delta;
        area.scrollTop = area.scrollHeight;
      }
      say(area.value ? "" : "No speech was found.");
    } catch (error) {
      sayWhy(error);
    }
    if (abort === mine) {
      abort = null;
      choose.textContent = "Choose a recording";
      input.value = "";
    }
  }

  return {
    element,
    keys: [["Ctrl+Enter", "choose a recording"], ["Esc", "stop"]],
    onKey(event) {
      if ((event.ctrlKey || event.metaKey) && event.key === "Enter") choose.click();
      else if (event.key === "Escape" && (abort || recorder)) (recorder ? recorder.stop() : abort.abort());
      else return false;
      return true;
    },
    leave() {
      abort?.abort();
      recorder?.stop();
    },
  };
}
