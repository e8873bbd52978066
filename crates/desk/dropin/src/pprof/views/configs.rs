//! Saves, deletes and lists the configurations of pprof's page. The caller reads and writes the
//! file.

use anyhow::{Result, anyhow, bail};

use super::fields::ViewConfig;
use super::settings::SavedConfigs;
use super::{PIVOT_PARAMETER, check_parameters};
use crate::views::ConfigLink;

/// The parameter that names a configuration.
const CONFIG_PARAMETER: &str = "config";

/// Returns the content of the settings file after the configuration of a URL was saved in it.
/// The parameter `config` is the name of the configuration. `content` is the content before;
/// `None` if there is no file.
pub(super) fn save(
    current: &ViewConfig,
    content: Option<&[u8]>,
    parameters: &[(String, String)],
) -> Result<Vec<u8>> {
    let name = config_name(parameters)?;
    let known = |key: &str| key == CONFIG_PARAMETER || key == PIVOT_PARAMETER;
    check_parameters(parameters, known)?;
    let mut config = current.clone();
    config.apply(parameters).map_err(|why| anyhow!(why))?;
    let mut saved = parse_settings(content)?;
    saved.set(name, config);
    Ok(saved.content())
}

/// Returns the content of the settings file without the configuration that the parameter
/// `config` names.
pub(super) fn delete(content: Option<&[u8]>, parameters: &[(String, String)]) -> Result<Vec<u8>> {
    let name = config_name(parameters)?;
    check_parameters(parameters, |key| key == CONFIG_PARAMETER)?;
    let mut saved = parse_settings(content)?;
    match saved.remove(name) {
        true => Ok(saved.content()),
        false => bail!("config {name} not found"),
    }
}

/// Returns the menu of configurations: pprof's defaults and those of the settings file, with
/// the parameters of a URL that has the configuration.
pub(super) fn menu(
    content: Option<&[u8]>,
    parameters: &[(String, String)],
) -> Result<Vec<ConfigLink>> {
    let saved = parse_settings(content)?;
    let defaults = ViewConfig::defaults();
    let all = std::iter::once(("Default", &defaults)).chain(saved.iter());
    let mut links: Vec<ConfigLink> = all
        .enumerate()
        .map(|(i, (name, config))| ConfigLink {
            name: name.to_string(),
            parameters: config.parameters(parameters),
            is_current: false,
            is_saved: i > 0,
        })
        .collect();
    let mut given = parameters.to_vec();
    given.retain(|(_, value)| !value.is_empty());
    let is_current = |link: &&mut ConfigLink| {
        link.parameters
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .eq(&given)
    };
    if let Some(last) = links.iter_mut().rev().find(is_current) {
        last.is_current = true;
    }
    Ok(links)
}

/// Returns the name of the configuration that `parameters` name.
fn config_name(parameters: &[(String, String)]) -> Result<&str> {
    let found = parameters.iter().find(|(key, _)| key == CONFIG_PARAMETER);
    match found.map_or("", |(_, name)| name.as_str()) {
        "" => bail!("invalid config name"),
        name => Ok(name),
    }
}

fn parse_settings(content: Option<&[u8]>) -> Result<SavedConfigs> {
    let Some(content) = content else {
        return Ok(SavedConfigs::default());
    };
    SavedConfigs::parse(content).map_err(|why| anyhow!(why))
}
