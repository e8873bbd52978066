// Divides a rectangle into smaller ones whose areas are values, as square as possible.

// Returns [{x, y, width, height, item}] for items that have a `value`, largest first.
export function squarified(items, x, y, width, height) {
  const out = [];
  const room = { x, y, width, height };
  let rest = items.reduce((sum, item) => sum + item.value, 0);
  let i = 0;
  while (i < items.length && room.width > 0 && room.height > 0) {
    const side = Math.min(room.width, room.height);
    const scale = room.width * room.height / rest;
    const { end, sum } = bestRow(items, i, side, scale);
    placeRow(items.slice(i, end), room, sum * scale / side, scale, out);
    rest -= sum;
    i = end;
  }
  return out;
}

// Takes items into a row as long as that makes the worst of them more square.
function bestRow(items, start, side, scale) {
  let sum = 0;
  let worst = Infinity;
  let end = start;
  for (; end < items.length; end++) {
    const { value } = items[end];
    const next = sum + value;
    const area = next * next * scale;
    const least = side * side;
    const ratio = Math.max(least * items[start].value / area, area / (least * value));
    if (end > start && ratio > worst) break;
    sum = next;
    worst = ratio;
  }
  return { end, sum };
}

function placeRow(row, room, thick, scale, out) {
  const isLying = room.width < room.height;
  let along = 0;
  for (const item of row) {
    const length = item.value * scale / thick;
    out.push(isLying
      ? { x: room.x + along, y: room.y, width: length, height: thick, item }
      : { x: room.x, y: room.y + along, width: thick, height: length, item });
    along += length;
  }
  if (isLying) {
    room.y += thick;
    room.height -= thick;
  } else {
    room.x += thick;
    room.width -= thick;
  }
}
