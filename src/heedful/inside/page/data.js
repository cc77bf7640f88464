// The other half of pack.py: a string -> words and typed arrays.

const halves = (() => {
  // Every number of 16 bits as a float, once.
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1,
      exponent = (bits >> 10) & 31,
      fraction = bits & 1023;
    table[bits] = sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
  }
  return table;
})();

const readers = {
  f2: (buffer, start, count) => Float32Array.from(new Uint16Array(buffer, start, count), (bits) => halves[bits]),
  f4: (buffer, start, count) => new Float32Array(buffer, start, count),
  u1: (buffer, start, count) => new Uint8Array(buffer, start, count),
  u2: (buffer, start, count) => new Uint16Array(buffer, start, count),
  i4: (buffer, start, count) => new Int32Array(buffer, start, count),
};

// An array of several axes: `at(1, 2)` is the part at these places, as a typed array.
class Numbers {
  constructor(buffer, [type, shape, start], base) {
    this.shape = shape;
    const count = shape.reduce((a, b) => a * b, 1);
    this.read = () => readers[type](buffer, base + start, count);
    this.most = { u1: 255, u2: 65535 }[type] || 1;
  }

  get values() {
    this.kept ??= this.read();
    return this.kept;
  }

  at(...places) {
    const size = this.shape.slice(places.length).reduce((a, b) => a * b, 1);
    let start = 0;
    places.forEach((place, axis) => {
      start = start * this.shape[axis] + place;
    });
    return this.values.subarray(start * size, (start + 1) * size);
  }
}

async function unpack(text) {
  const letters = atob(text.trim());
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  return JSON.parse(header, (key, value) =>
    value && typeof value === "object" && Array.isArray(value.$) ? new Numbers(buffer, value.$, 4 + length) : value,
  );
}
