//! Writes a file through a buffer, and adds the file's name to errors.

use std::io::{self, BufWriter, Write};

use super::{FileAccess, FilePlace};

/// The error of a file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{name}: cannot be written")]
pub struct FileWriteError {
    /// The name of the file in messages.
    name: String,
    /// The kernel's error.
    source: io::Error,
}

/// Writes a file at `place` with the content that `body` produces. The file appears only when it is
/// complete. Errors name the file as `shown`.
pub fn replace_file<E>(
    place: &FilePlace,
    shown: &str,
    access: FileAccess,
    body: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E>
where
    E: From<FileWriteError> + From<io::Error>,
{
    let unwritable = |source| FileWriteError {
        name: shown.to_string(),
        source,
    };
    let mut draft = place.draft(access).map_err(unwritable)?;
    write_named(shown, draft.file(), body)?;
    Ok(draft.finish().map_err(unwritable)?)
}

/// Writes the content that `body` produces to `writer`. Errors of writing mention `name`.
pub fn write_named<E>(
    name: &str,
    writer: impl Write,
    body: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E>
where
    E: From<FileWriteError> + From<io::Error>,
{
    let watched = ErrorKeepingWriter {
        writer,
        failure: None,
    };
    // The buffer is smaller than the parts of a profile that is stored as it is, so those are not
    // copied.
    let mut writer = BufWriter::with_capacity(32 << 10, watched);
    let result = body(&mut writer).and_then(|()| Ok(writer.flush()?));
    match &writer.get_ref().failure {
        // This error is the real reason, even if `body` returned another error.
        Some(why) => Err(FileWriteError {
            name: name.to_string(),
            source: copy_error(why),
        }
        .into()),
        None => result,
    }
}

/// A writer that stores the error of a failed write.
struct ErrorKeepingWriter<W> {
    writer: W,
    failure: Option<io::Error>,
}

/// Returns an error of the same kind with the same text.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl<W> ErrorKeepingWriter<W> {
    fn keep<R>(&mut self, result: io::Result<R>) -> io::Result<R> {
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.failure = Some(copy_error(error));
        }
        result
    }
}

impl<W: Write> Write for ErrorKeepingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.writer.write(bytes);
        self.keep(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.writer.flush();
        self.keep(result)
    }
}
