//! Reads lines of Devel::MProf, which profiles Perl: `function:before:after` at the end of each
//! call.
//!
//! The numbers are pages of the process's address space (`/proc/PID/statm`), before the call and
//! after it. A call within another call ends first, so its line comes first.
//!
//! The file does not name callers. If the process grew, the caller can be found: when the caller
//! began, there were no more pages than when its callee began. The own growth of a call excludes
//! the growth of the calls within it, so the own growths of all calls add up to the growth of the
//! process. The caller of a call that changed nothing can't be found. Such a call counts as made by
//! the next call that changed something.
//!
//! A function may begin twice at the same size, because the process returned to this size. Either
//! the function was called again (in a loop that takes memory and gives it back) or it called
//! itself. In both cases the call is counted at the place of the first call. Otherwise a loop would
//! look like a recursion with a frame for each pass.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::LocationIndex;

use crate::error::{FormatError, shortened};
use crate::figures::decimal;
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, MprofCall, ProfileReading};
use crate::tally::{FrameBudget, SampleTally, overflow};

/// Size of a page in bytes on usual machines that run Perl. The file does not contain the size.
const PAGE_SIZE: i64 = 4096;

/// Splits a line into its three parts. Perl's names contain colons themselves.
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
    // A file may be damaged, but not at its beginning.
    lines.clone().next().is_some_and(is_call) && 2 * calls > lines.count()
}

/// A call that has ended, together with later calls of the function that are counted as this call.
struct MprofCallGroup {
    function: u32,
    before: i64,
    /// Number of calls in this group.
    calls: i64,
    /// Growth of these calls in pages, without the growth of the calls within them.
    own: i64,
    /// Number of the call that contains these calls; [`NO_CALLER`] if there is none, or if it has
    /// not ended yet.
    caller: u32,
    line: u64,
}

const NO_CALLER: u32 = u32::MAX;

/// A stack: its innermost function, and the number of the caller's stack, which is [`NO_CALLER`]
/// for a root.
type MprofStack = (LocationIndex, u32);

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut tally = SampleTally::new(&[("calls", "count"), ("growth", "bytes")], options);
    let (mut asked, mut names) = (Vec::new(), HashMap::<u32, Rc<str>>::new());
    let mut calls: Vec<MprofCallGroup> = Vec::new();
    // Ended calls whose caller is still running, with their growth.
    let mut waiting: Vec<(u32, i64)> = Vec::new();
    // The last call that changed something, by its function and the number of pages when it began.
    let mut latest: HashMap<(u32, i64), u32> = HashMap::new();
    let mut inside = Vec::new();
    while lines.advance()? {
        let line = lines.line().trim_ascii_end();
        let (name, before, after) = parts(line)
            .ok_or_else(|| lines.wrong_part("function:before:after, in pages", shortened(line)))?;
        let function = tally.find_or_make(name, |tally| {
            tally.named_location(&String::from_utf8_lossy(name))
        })?;
        asked.push(MprofCall {
            function: Rc::clone(names.entry(function.0).or_insert_with(|| {
                // The profile uses this name, too.
                String::from_utf8_lossy(name).into()
            })),
            before,
            after,
        });
        let number = u32::try_from(calls.len()).ok().filter(|&n| n != NO_CALLER);
        let number = number.ok_or_else(|| overflow("the number of calls"))?;
        let too_much = || overflow("the growth of calls");
        // Both numbers are at most 2^63, so the difference fits.
        let growth = after - before;
        let mut own = growth;
        let mut same = None;
        // A call that changed nothing can be within the next such call or before it. Deep stacks of
        // such calls do not help the user, so none of them is within another.
        while growth != 0
            && let Some(&(within, grown)) = waiting.last()
        {
            let is_within = |call: &&MprofCallGroup| {
                let is_before = grown != 0 && call.before.checked_add(grown) == Some(before);
                call.before >= before && !is_before
            };
            if calls.get(within as usize).filter(is_within).is_none() {
                break;
            }
            own = own.checked_sub(grown).ok_or_else(too_much)?;
            // The earlier call of the function is used only if it ended after the call that waits
            // below, because only then the two are at the same place.
            let beneath = waiting.len().checked_sub(2).map(|i| waiting[i].0);
            same = latest.get(&(function.0, before)).copied();
            same = same.filter(|&same| beneath.is_none_or(|beneath| same > beneath));
            if same.is_some() {
                break;
            }
            inside.push(within);
            waiting.pop();
        }
        let counted = same.unwrap_or(number);
        for within in inside.drain(..) {
            if let Some(call) = calls.get_mut(within as usize) {
                call.caller = counted;
            }
        }
        match same.and_then(|same| calls.get_mut(same as usize)) {
            Some(call) => {
                call.calls += 1;
                call.own = call.own.checked_add(own).ok_or_else(too_much)?;
                if let Some((_, grown)) = waiting.last_mut() {
                    *grown = growth;
                }
            }
            None => {
                if growth != 0 {
                    latest.insert((function.0, before), number);
                }
                waiting.push((number, growth));
                calls.push(MprofCallGroup {
                    function: function.0,
                    before,
                    calls: 1,
                    own,
                    caller: NO_CALLER,
                    line: lines.number(),
                });
            }
        }
    }
    if calls.is_empty() {
        return Err(lines.ended("function:before:after, in pages"));
    }
    let mut reading = profile(tally, calls, FrameBudget::for_file_bytes(lines.bytes()))?;
    reading.calls = asked;
    Ok(reading)
}

fn profile(
    mut tally: SampleTally,
    calls: Vec<MprofCallGroup>,
    mut frames: FrameBudget,
) -> Result<ProfileReading, FormatError> {
    // Many calls have the same stack. It is made once, after the stack of its caller.
    let mut stack_of = vec![NO_CALLER; calls.len()];
    let mut path = Vec::new();
    let mut numbers: HashMap<MprofStack, u32> = HashMap::new();
    let mut stacks: Vec<MprofStack> = Vec::new();
    for i in 0..calls.len() {
        let mut at = i;
        let mut caller = NO_CALLER;
        while let Some(&known) = stack_of.get(at) {
            if known != NO_CALLER {
                caller = known;
                break;
            }
            path.push(at);
            at = calls[at].caller as usize;
        }
        for at in path.drain(..).rev() {
            let stack = (LocationIndex(calls[at].function), caller);
            // There are at most as many stacks as calls, whose numbers fit.
            caller = *numbers.entry(stack).or_insert_with(|| {
                stacks.push(stack);
                stacks.len() as u32 - 1
            });
            stack_of[at] = caller;
        }
    }
    drop(numbers);
    let none = tally.text_label_set("", "");
    let mut sample: Vec<Option<u32>> = vec![None; stacks.len()];
    let mut frame = Vec::new();
    for (call, &number) in calls.iter().zip(&stack_of) {
        let at_line = |error: FormatError| error.at_line(call.line);
        let bytes = call
            .own
            .checked_mul(PAGE_SIZE)
            .ok_or_else(|| at_line(overflow("the growth of a call")))?;
        let number = number as usize;
        if let Some(sample) = sample[number] {
            tally
                .add_to(sample, &[call.calls, bytes])
                .map_err(at_line)?;
            continue;
        }
        frame.clear();
        let mut next = Some(&stacks[number]);
        while let Some(&(function, caller)) = next {
            frames.count()?;
            frame.push(function);
            next = stacks.get(caller as usize);
        }
        sample[number] = Some(
            tally
                .add(&frame, none, &[call.calls, bytes])
                .map_err(at_line)?,
        );
    }
    let unsampling = "pages of the address space times 4096";
    Ok(ProfileReading::new(
        ProfileFormat::Mprof,
        unsampling,
        tally.finish(),
    ))
}

#[cfg(test)]
mod tests {
    use crate::profile_text::{read, samples};

    /// Returns the samples of a text. Pages have 4096 bytes.
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
        // One call after the other; the process grows and shrinks.
        assert_eq!(pages("a:10:20\na:20:15\nb:15:18\n"), ["a 2 5", "b 1 3"]);
        // A recursion. Each call has a line when it ends.
        assert_eq!(
            pages("f:12:13\nf:11:13\nf:10:13\n"),
            ["f;f;f 1 1", "f;f 1 1", "f 1 1"]
        );
        // Loops that give back the memory that they took: of one function, of one function with
        // another in it, and of two functions. Also loops with other sizes.
        assert_eq!(pages("f:10:40\nf:10:40\nf:10:40\n"), ["f 3 30"]);
        assert_eq!(
            pages("f:10:40\nf:10:90\nf:10:20\nx:9:21\n"),
            ["x;f 3 10", "x 1 2"]
        );
        assert_eq!(
            pages("g:10:40\nf:10:40\ng:10:40\nf:10:40\n"),
            ["f;g 2 30", "f 2 0"]
        );
        assert_eq!(
            pages("g:10:20\nh:20:40\nf:10:40\nz:10:10\ng:10:20\nh:20:40\nf:10:40\n"),
            ["f;g 2 -10", "f;h 2 40", "f 2 0", "f;g;z 1 0"]
        );
        // Calls that changed nothing belong to the next caller that changed something.
        assert_eq!(pages("x:10:10\nx:10:10\ny:10:12\n"), ["y;x 2 0", "y 1 2"]);
    }
}
