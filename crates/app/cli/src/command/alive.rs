//! `heapprof alive`: lets a script report that a part of it runs.

use std::path::Path;

use anyhow::{Result, bail};
use heapprof_abi::environment as variable;
use heapprof_wiretap::{DatagramSender, RouteError, WiretapRoute};

use crate::args::AliveReportArgs;

pub(super) fn run(args: &AliveReportArgs) -> Result<()> {
    if args.name.is_empty() {
        bail!("NAME is empty; give a name for the code that runs");
    }
    let get = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(address) = get(variable::WIRETAP.name) else {
        return Ok(());
    };
    let key_file = get(variable::WIRETAP_KEY_FILE.name);
    let route = WiretapRoute::new(
        address.as_encoded_bytes(),
        key_file.as_deref().map(Path::new),
    );
    let route = match route {
        Ok(route) => route,
        Err(RouteError::Key(error)) => {
            let file = key_file.unwrap_or_default();
            bail!(
                "{}: {}: {error}",
                variable::WIRETAP_KEY_FILE.name,
                file.display()
            )
        }
        Err(wrong) => bail!("{}: {}: {wrong}", variable::WIRETAP.name, address.display()),
    };
    let sender = DatagramSender::new();
    sender.set(route);
    sender.alive(args.name.as_bytes(), args.site.as_bytes());
    sender.end();
    Ok(())
}
