//! The user and the password for stores on other machines. They come from the environment, because
//! all users can see command lines.

/// Returns the user and the password. The default user is ClickHouse's `default`, and the default
/// password is empty.
pub(crate) fn from_environment() -> (String, String) {
    let said = |name| std::env::var(name).unwrap_or_default();
    let user = match said("HEAPPROF_STORE_USER") {
        user if user.is_empty() => "default".to_string(),
        user => user,
    };
    (user, said("HEAPPROF_STORE_PASSWORD"))
}
