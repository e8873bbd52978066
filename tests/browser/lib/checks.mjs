// Counts checks, and prints one line for each.

export function makeChecks() {
  const state = { passed: 0, failed: 0, where: '' };
  const say = (isRight, words) => {
    state[isRight ? 'passed' : 'failed']++;
    console.log(`${isRight ? 'ok  ' : 'FAIL'} ${state.where}: ${words}`);
    return isRight;
  };
  const check = (isRight, words) => say(Boolean(isRight), words);
  check.at = where => { state.where = where; };
  check.equal = (got, wanted, words) => say(Object.is(got, wanted),
    Object.is(got, wanted) ? words : `${words}: got ${short(got)}, wanted ${short(wanted)}`);
  // Compares two lists of anything, and tells the first places where they differ.
  check.same = (got, wanted, words) => {
    const wrong = [];
    for (let i = 0; i < Math.max(got.length, wanted.length); i++) {
      const [a, b] = [JSON.stringify(got[i]), JSON.stringify(wanted[i])];
      if (a !== b) wrong.push(`${i}: got ${a}, wanted ${b}`);
    }
    const isEmpty = !wanted.length;
    const told = `${words} (${wanted.length})`;
    return say(!wrong.length && !isEmpty, isEmpty ? `${told}: nothing to compare`
      : wrong.length ? `${told}: ${wrong.length} differ, ${wrong.slice(0, 3).join('; ')}` : told);
  };
  check.end = () => {
    console.log(`${state.passed} checks passed, ${state.failed} failed`);
    return state.failed ? 1 : 0;
  };
  return check;
}

function short(value) {
  return (JSON.stringify(value) ?? String(value)).slice(0, 900);
}
