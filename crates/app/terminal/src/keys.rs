//! The keys of the view, independent of the codes that a terminal sends for them.

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

/// A key of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPress {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Left,
    Right,
    Enter,
    Esc,
    Tab,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Redraw,
}

/// Returns the key of a terminal event; `None` if the event is no key of the view.
pub(super) fn key_from_event(event: &Event) -> Option<KeyPress> {
    let Event::Key(key) = event else {
        return None;
    };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if is_control => KeyPress::Interrupt,
        KeyCode::Char('z') if is_control => KeyPress::Suspend,
        KeyCode::Char('l') if is_control => KeyPress::Redraw,
        // In raw mode a terminal may send Ctrl-J for Enter.
        KeyCode::Char('j') if is_control => KeyPress::Enter,
        KeyCode::Char(c) if !is_control => KeyPress::Char(c),
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown => KeyPress::PageDown,
        KeyCode::Home => KeyPress::Home,
        KeyCode::End => KeyPress::End,
        KeyCode::Left => KeyPress::Left,
        KeyCode::Right => KeyPress::Right,
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Esc => KeyPress::Esc,
        KeyCode::Tab | KeyCode::BackTab => KeyPress::Tab,
        KeyCode::Backspace => KeyPress::Backspace,
        _ => return None,
    })
}

/// The keys and their effects, for the help.
pub(super) const KEY_HELP: &[(&str, &str)] = &[
    ("1 2 3 4", "table, tree, timeline, growth"),
    ("↑ ↓ PgUp PgDn Home End", "move to another row"),
    ("Enter", "callers, callees and lines; in the tree: unfold"),
    ("← →", "in the tree: fold, unfold"),
    ("Tab", "callers or callees below the table"),
    ("s S", "sort by the next column; reverse the order"),
    ("t", "the next sample type: in use, allocated, peak …"),
    ("b", "bytes or objects"),
    ("o", "attribute the memory of libraries to own code"),
    ("/", "only stacks that match a regular expression"),
    ("d D", "compare with this moment; D: with the start again"),
    ("p", "the next process, or all of them together"),
    ("[ ]", "the previous and the next moment (of a series)"),
    ("space", "freeze: stop reading the program"),
    ("w", "save the profile (readable only by you)"),
    ("r", "save it, and write its report as an HTML file"),
    ("Esc", "one step back"),
    ("Ctrl-L", "redraw the screen"),
    ("q", "quit; asks first if the program is still running"),
];
