//! Looks up a text in a Python dictionary, without asking Python.

use heapprof_memory::Memory;

use crate::interpreter::PythonRuntime;
use crate::layout::LENGTH_OFFSET;

/// Maximum number of entries of a dictionary. No dictionary of modules or source texts has more.
const MAX_ENTRIES: u64 = 1 << 16;
/// Maximum length of a key that is looked up, in bytes.
const MAX_KEY_LEN: usize = 256;

/// Offset, in a dictionary object, of the address of its keys.
const KEYS_OFFSET: u64 = 32;
/// Offset, in a dictionary object, of the address of values that are stored separately from the
/// keys.
const VALUES_OFFSET: u64 = 40;

/// The entries of a dictionary.
struct DictionaryEntries {
    /// Address of the first entry.
    first: u64,
    /// The number of entries.
    count: u64,
    /// Size of each entry, in bytes.
    len: u64,
    /// Offset, in an entry, of its key. The value follows the key.
    key: u64,
}

impl PythonRuntime {
    /// Returns the value of a key that is a text; `None` if the dictionary does not have the key,
    /// or if something can't be read.
    pub(crate) fn value<M: Memory>(&self, memory: M, dictionary: u64, key: &[u8]) -> Option<u64> {
        let entries = self.entries(memory, dictionary)?;
        let is_ascii = key.is_ascii();
        let is_it = |at: u64| {
            // A text that is not ASCII has fewer characters than bytes.
            let len = memory.u64(at + self.layout.header + LENGTH_OFFSET)?;
            if len > key.len() as u64 || is_ascii && len != key.len() as u64 {
                return None;
            }
            let mut text = [0; MAX_KEY_LEN];
            let len = self.text(memory, at, &mut text)?;
            (text.get(..len) == Some(key)).then_some(())
        };
        for i in 0..entries.count {
            let at = entries.first + i * entries.len + entries.key;
            let [found, value] = memory.fields(at, [0, 8])?;
            // Null stands where an entry was removed.
            if found != 0 && value != 0 && is_it(found).is_some() {
                return Some(value);
            }
        }
        None
    }

    fn entries<M: Memory>(&self, memory: M, dictionary: u64) -> Option<DictionaryEntries> {
        let dictionary = dictionary.checked_add(self.layout.header)?;
        if memory.u64(dictionary + VALUES_OFFSET)? != 0 {
            return None;
        }
        let keys = memory.u64(dictionary + KEYS_OFFSET)?;
        let (begin, count, indices, has_hash) = match self.layout.minor {
            ..=10 => {
                let [size, count] = memory.fields(keys, [8, 32])?;
                let width = match size {
                    0..=0xff => 1,
                    0x100..=0xffff => 2,
                    0x1_0000..=0xffff_ffff => 4,
                    _ => return None,
                };
                (40, count, size * width, true)
            }
            _ => {
                let log_of_bytes = memory.u8(keys + 9)?;
                let kind = memory.u8(keys + 10)?;
                let bytes = 1u64.checked_shl(log_of_bytes.into())?;
                (32, memory.u64(keys + 24)?, bytes, kind == 0)
            }
        };
        (count <= MAX_ENTRIES).then_some(DictionaryEntries {
            first: keys.checked_add(begin)?.checked_add(indices)?,
            count,
            len: if has_hash { 24 } else { 16 },
            key: if has_hash { 8 } else { 0 },
        })
    }
}
