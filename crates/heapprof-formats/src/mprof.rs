//! Lines of Devel::MProf, which profiles Perl: `function:before:after` at the end of each call.
//!
//! The numbers are pages of the process's address space (`/proc/PID/statm`), before the call and after it. A call
//! within another ends first, and its line comes first. Whose call it was is not said, but where the process grew it
//! can be told: a caller began when there were no more pages than before what it called. So each call's own growth is
//! what the calls within it do not account for, and those of all calls add up to the process's. Of calls that
//! changed nothing it can't be told; they count as made by the next caller that did.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::LocationIndex;

use crate::error::{Error, shortened};
use crate::figures::decimal;
use crate::format::Format;
use crate::lines::Lines;
use crate::reading::{Options, Reading};
use crate::tally::{Frames, Tally, overflow};

/// The size of a page on the machines that Perl profiles come from; the file does not say it.
const PAGE: i64 = 4096;

/// A line's three parts. Perl's names have colons of their own.
fn parts(line: &[u8]) -> Option<(&[u8], i64, i64)> {
    let mut parts = line.rsplitn(3, |&b| b == b':');
    let pages = |text: &[u8]| i64::try_from(decimal(text)?).ok();
    let (after, before) = (pages(parts.next()?)?, pages(parts.next()?)?);
    let name = parts
        .next()
        .filter(|name| !name.is_empty() && !name.contains(&b';'))?;
    Some((name, before, after))
}

pub(crate) fn sniff(head: &[u8]) -> bool {
    // The last line may be cut.
    let Some(end) = memchr::memrchr(b'\n', head) else {
        return parts(head).is_some();
    };
    let lines = head[..end].split(|&b| b == b'\n');
    let is_call = |line: &[u8]| parts(line.trim_ascii_end()).is_some();
    let calls = lines.clone().filter(|line| is_call(line)).count();
    // A file may be damaged, but not from the beginning.
    lines.clone().next().is_some_and(is_call) && 2 * calls > lines.count()
}

/// A call that has ended.
struct Call {
    function: u32,
    before: i64,
    /// Pages, without the calls within.
    own: i64,
    /// The call it was made in, by number; none yet, or no function. Later the stack it was made on.
    caller: u32,
}

const NO_CALLER: u32 = u32::MAX;

/// A stack: a function and the stack that called it, by number or `NO_CALLER`.
type Stack = (LocationIndex, u32);

pub(crate) fn read(lines: &mut Lines<'_>, _options: &Options) -> Result<Reading, Error> {
    let mut tally = Tally::new(&[("calls", "count"), ("growth", "bytes")]);
    let mut calls: Vec<Call> = Vec::new();
    // Ended calls whose caller is still running, with their growth.
    let mut waiting: Vec<(u32, i64)> = Vec::new();
    while lines.advance()? {
        let line = lines.line().trim_ascii_end();
        let (name, before, after) = parts(line)
            .ok_or_else(|| lines.wrong_part("function:before:after, in pages", shortened(line)))?;
        let function = tally.known(
            name,
            |tally| Ok(tally.named(&String::from_utf8_lossy(name))),
        )?;
        let number = u32::try_from(calls.len()).ok().filter(|&n| n != NO_CALLER);
        let number = number.ok_or_else(|| overflow("the number of calls"))?;
        // Both are at most 2^63, so the difference fits.
        let growth = after - before;
        let mut own = growth;
        // Of calls that changed nothing, one can be within the other or behind it; deep stacks of them help nobody.
        while growth != 0
            && let Some(&(within, grown)) = waiting.last()
        {
            let is_within = |call: &&mut Call| {
                let is_before = grown != 0 && call.before.checked_add(grown) == Some(before);
                call.before >= before && !is_before
            };
            let Some(call) = calls.get_mut(within as usize).filter(is_within) else {
                break;
            };
            call.caller = number;
            own = own
                .checked_sub(grown)
                .ok_or_else(|| overflow("the growth of calls"))?;
            waiting.pop();
        }
        waiting.push((number, growth));
        calls.push(Call {
            function: function.0,
            before,
            own,
            caller: NO_CALLER,
        });
    }
    if calls.is_empty() {
        return Err(lines.ended("function:before:after, in pages"));
    }
    profile(tally, calls, Frames::of(lines.bytes()))
}

fn profile(mut tally: Tally, mut calls: Vec<Call>, mut frames: Frames) -> Result<Reading, Error> {
    // Calls on one stack are many; it is spelled out once. A caller ended later, so its stack is known first.
    let mut numbers: HashMap<Stack, u32> = HashMap::new();
    let mut stacks: Vec<Stack> = Vec::new();
    for i in (0..calls.len()).rev() {
        let caller = calls.get(calls[i].caller as usize);
        let caller = caller.map_or(NO_CALLER, |call| call.caller);
        let stack = (LocationIndex(calls[i].function), caller);
        // There are no more stacks than calls, whose numbers fit.
        calls[i].caller = *numbers.entry(stack).or_insert_with(|| {
            stacks.push(stack);
            stacks.len() as u32 - 1
        });
    }
    drop(numbers);
    let none = tally.labelled("", "");
    let mut sample: Vec<Option<u32>> = vec![None; stacks.len()];
    let mut frame = Vec::new();
    for (call, line) in calls.iter().zip(1..) {
        let at_line = |error: Error| error.at_line(line);
        let bytes = call
            .own
            .checked_mul(PAGE)
            .ok_or_else(|| at_line(overflow("the growth of a call")))?;
        let number = call.caller as usize;
        if let Some(sample) = sample[number] {
            tally.add_to(sample, &[1, bytes]).map_err(at_line)?;
            continue;
        }
        frame.clear();
        let mut next = Some(&stacks[number]);
        while let Some(&(function, caller)) = next {
            frames.count()?;
            frame.push(function);
            next = stacks.get(caller as usize);
        }
        sample[number] = Some(tally.add(&frame, none, &[1, bytes]).map_err(at_line)?);
    }
    let unsampling = "pages of the address space times 4096";
    Ok(Reading::new(Format::Mprof, unsampling, tally.finish()))
}

#[cfg(test)]
mod tests {
    use crate::rendered::{read, samples};

    /// Pages: values of 4096 bytes.
    fn pages(text: &str) -> Vec<String> {
        let lines = samples(&read(text)).into_iter().map(|line| {
            let (rest, bytes) = line.rsplit_once(' ').unwrap();
            format!("{rest} {}", bytes.parse::<i64>().unwrap() / 4096)
        });
        lines.collect()
    }

    #[test]
    fn a_caller_began_before_what_it_called() {
        // a calls b, which calls c; d comes after a.
        let nested = "c:12:15\nmain::b:11:16\nmain::a:10:20\nd:20:21\n";
        assert_eq!(
            pages(nested),
            [
                "main::a;main::b;c 1 3",
                "main::a;main::b 1 2",
                "main::a 1 5",
                "d 1 1"
            ]
        );
        // One call after the other, growing and shrinking.
        assert_eq!(pages("a:10:20\na:20:15\nb:15:18\n"), ["a 2 5", "b 1 3"]);
        // Recursion, as each call ends.
        assert_eq!(
            pages("f:12:13\nf:11:13\nf:10:13\n"),
            ["f;f;f 1 1", "f;f 1 1", "f 1 1"]
        );
        // Calls that changed nothing count for the next caller that did.
        assert_eq!(pages("x:10:10\nx:10:10\ny:10:12\n"), ["y;x 2 0", "y 1 2"]);
    }
}
