// A million objects in V8's heap.
function makeObjects(count) {
  const objects = [];
  for (let i = 0; i < count; i++) objects.push({ id: i, name: "n" + i, pair: [i, i + 1] });
  return objects;
}
const objects = makeObjects(1000000);
console.log("ready");
process.stdin.once("data", () => process.exit(objects.length === 1000000 ? 0 : 1));
process.stdin.once("end", () => process.exit(objects.length === 1000000 ? 0 : 1));
