//! Spells the path of a variable as Perl code does.

/// Returns a path to a Perl variable as Perl code spells the variable: `main::;Shop::;%cache` is
/// `%Shop::cache`. A path that begins elsewhere stays as it is.
#[must_use]
pub fn perl_spelling(path: &str) -> String {
    // A sub has a pad for each depth of its recursion, and mostly only one.
    let is_named = |step: &&str| *step != "<pad depth 1>";
    let steps: Vec<&str> = path.split(';').filter(is_named).collect();
    if let ["(main program)", rest @ ..] = &steps[..]
        && rest.first().is_some_and(|step| step.starts_with("my "))
    {
        return rest.concat();
    }
    let packages = steps.iter().take_while(|step| step.ends_with("::")).count();
    let Some(variable) = steps.get(packages).filter(|_| packages > 0) else {
        return path.to_string();
    };
    let sigil = variable
        .chars()
        .next()
        .filter(|sigil| "$@%&*".contains(*sigil));
    let Some(sigil) = sigil else {
        return path.to_string();
    };
    let package = match &steps[..packages] {
        ["main::"] => "main::".to_string(),
        ["main::", rest @ ..] => rest.concat(),
        all => all.concat(),
    };
    let name = &variable[sigil.len_utf8()..];
    let rest = steps[packages + 1..].iter().map(|step| {
        match step.starts_with("my ") || step.starts_with('<') {
            true => format!(" {}", step.replace("<pad depth ", "<depth ")),
            false => (*step).to_string(),
        }
    });
    format!("{sigil}{package}{name}{}", rest.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perl_variables_are_spelled_as_in_perl() {
        for (path, expected) in [
            ("main::;@rows", "@main::rows"),
            ("main::;Shop::;Order::;%cache", "%Shop::Order::cache"),
            ("main::;Shop::;%cache;{key}", "%Shop::cache{key}"),
            ("(main program);my $x", "my $x"),
            ("(main program);<pad depth 1>;my @done", "my @done"),
            ("main::;&work;my @list", "&main::work my @list"),
            (
                "main::;&work;<pad depth 1>;my @list",
                "&main::work my @list",
            ),
            (
                "main::;&work;<pad depth 2>;my @list",
                "&main::work <depth 2> my @list",
            ),
            ("(running);(temporary)", "(running);(temporary)"),
            ("", ""),
        ] {
            assert_eq!(perl_spelling(path), expected);
        }
    }
}
