// Opens the container: zlib(u32le length of the head · head as JSON · column bytes).

const SCHEMA = 'heapprof.report.v1';

// Returns {head, column(name), has(name)}. It throws if the bytes are no such container.
export async function openContainer(compressed) {
  const raw = await inflate(compressed);
  if (raw.length < 4) throw new Error('the data are empty');
  const length = new DataView(raw.buffer).getUint32(0, true);
  if (4 + length > raw.length) throw new Error('the data end within their head');
  const head = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + length)));
  if (head.schema !== SCHEMA) throw new Error(`schema ${head.schema} instead of ${SCHEMA}`);
  const bytes = raw.subarray(4 + length);
  const columns = new Map(head.columns.map(column => [column[0], column]));
  return {
    head,
    has: name => columns.has(name),
    column: name => readColumn(bytes, columns.get(name)),
    whole: name => readWhole(bytes, columns.get(name)),
  };
}

// Returns the bytes of a base64 text.
export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

async function inflate(compressed) {
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Reads a column of values up to 2^53. Kinds: u varint, z zigzag, d zigzag of differences.
function readColumn(bytes, column) {
  if (!column) return null;
  const [, offset, count, kind] = column;
  const values = new Float64Array(count);
  let at = offset;
  let before = 0;
  for (let i = 0; i < count; i++) {
    let byte = bytes[at++];
    let value = byte & 127;
    let scale = 128;
    while (byte & 128) {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    }
    if (kind !== 'u') value = value % 2 ? -(value + 1) / 2 : value / 2;
    values[i] = kind === 'd' ? before += value : value;
  }
  return values;
}

// Reads a column of small numbers, such as indices, with the faster whole-number operations.
function readWhole(bytes, column) {
  if (!column) return null;
  const [, offset, count, kind] = column;
  const values = new Int32Array(count);
  const zigzag = kind !== 'u';
  const sums = kind === 'd';
  let at = offset;
  let before = 0;
  for (let i = 0; i < count; i++) {
    let byte = bytes[at++];
    let value = byte & 127;
    for (let shift = 7; byte & 128; shift += 7) {
      byte = bytes[at++];
      value |= (byte & 127) << shift;
    }
    if (zigzag) value = (value >>> 1) ^ -(value & 1);
    values[i] = sums ? before += value : value;
  }
  return values;
}
