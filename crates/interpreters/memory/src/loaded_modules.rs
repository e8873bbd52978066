//! Finds the objects that the loader has loaded, and their dynamic symbols, without asking the
//! loader.
//!
//! The structures are those of glibc's `link.h` and of the ELF specification: `r_debug`,
//! `link_map`, the dynamic section, its GNU hash table and its symbols. Debuggers find objects in
//! the same way. This also works while another thread loads an object: a half-loaded object is not
//! found.

use crate::Memory;

/// An object (executable or library) that the loader has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedObject {
    /// The difference between an address of the object in memory and the address in its file.
    pub base: u64,
    /// Address of the object's dynamic section; 0 if it has none.
    pub dynamic: u64,
}

/// A symbol that a loaded object defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicSymbol {
    /// The symbol's address. For a thread-local symbol, the offset in the object's thread-local
    /// memory.
    pub address: u64,
    /// Size of the symbol in bytes.
    pub size: u64,
}

/// Maximum number of loaded objects. A longer list counts as damaged.
const MAX_OBJECTS: usize = 100_000;
/// Maximum number of entries in a dynamic section. A longer section counts as damaged.
const MAX_DYNAMIC_ENTRIES: u64 = 1000;
/// Maximum length of a chain of symbols with equal hashes. A longer chain counts as damaged.
const MAX_HASH_CHAIN: u64 = 100_000;

/// Iterates over the objects in the list of the `r_debug` at `at`, which glibc exports as
/// `_r_debug`.
pub fn objects<M: Memory>(memory: M, at: u64) -> impl Iterator<Item = LoadedObject> {
    let mut map = memory.u64(at.wrapping_add(8)).unwrap_or(0);
    let next = move || {
        if map == 0 {
            return None;
        }
        let mut bytes = [0; 32];
        if !memory.read(map, &mut bytes) {
            return None;
        }
        let word = |at: usize| {
            let word = bytes[at..at + 8].first_chunk();
            word.map_or(0, |word| u64::from_ne_bytes(*word))
        };
        let object = LoadedObject {
            base: word(0),
            dynamic: word(16),
        };
        map = word(24);
        Some(object)
    };
    core::iter::from_fn(next).take(MAX_OBJECTS)
}

/// A process's executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedExecutable {
    /// The executable as a loaded object.
    pub object: LoadedObject,
    /// Address of the path of the executable's loader; `None` if it has no loader.
    pub loader: Option<u64>,
}

/// Finds the executable of a process. `auxiliary` is the process's auxiliary vector: pairs of a key
/// and a word, which the kernel passed to the process at its start (`/proc/PID/auxv`). `None` if
/// the executable has no dynamic section, because it is linked statically.
pub fn executable<M: Memory>(memory: M, auxiliary: &[u8]) -> Option<LoadedExecutable> {
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    const PT_DYNAMIC: u32 = 2;
    const PT_INTERP: u32 = 3;
    const PT_PHDR: u32 = 6;
    const MAX_PROGRAM_HEADERS: u64 = 1000;
    let headers = auxiliary_value(auxiliary, AT_PHDR)?;
    let count = auxiliary_value(auxiliary, AT_PHNUM)?.min(MAX_PROGRAM_HEADERS);
    let (mut base, mut dynamic, mut loader) = (0, None, None);
    for at in (0..count).map(|i| headers.wrapping_add(56 * i)) {
        let place = memory.u64(at.wrapping_add(16))?;
        match memory.u32(at)? {
            PT_PHDR => base = headers.wrapping_sub(place),
            PT_DYNAMIC => dynamic = Some(place),
            PT_INTERP => loader = Some(place),
            _ => {}
        }
    }
    let object = LoadedObject::at(base, base.wrapping_add(dynamic?));
    let loader = loader.map(|place: u64| base.wrapping_add(place));
    Some(LoadedExecutable { object, loader })
}

/// Returns the value for `key` in an auxiliary vector.
pub fn auxiliary_value(auxiliary: &[u8], key: u64) -> Option<u64> {
    let mut pairs = auxiliary.as_chunks::<8>().0.as_chunks::<2>().0.iter();
    let pair = pairs.find(|[found, _]| u64::from_ne_bytes(*found) == key)?;
    Some(u64::from_ne_bytes(pair[1]))
}

/// Iterates over the loaded objects of a process, starting from its executable. The executable
/// comes first.
pub fn objects_from_executable<M: Memory>(
    memory: M,
    executable: LoadedObject,
) -> impl Iterator<Item = LoadedObject> {
    const DT_DEBUG: u64 = 21;
    let debug = executable.entry(memory, DT_DEBUG);
    debug.into_iter().flat_map(move |at| objects(memory, at))
}

impl LoadedObject {
    /// Makes an object from its base and the address of its dynamic section. `dynamic` is 0 if the
    /// object has no dynamic section.
    pub const fn at(base: u64, dynamic: u64) -> Self {
        Self { base, dynamic }
    }

    /// Returns the address of a section: the value with a `tag` in the dynamic section.
    pub fn section<M: Memory>(self, memory: M, tag: u64) -> Option<u64> {
        let value = self.entry(memory, tag)?;
        // Old versions of glibc overwrite the value from the file with the address.
        let is_address = value >= self.base;
        Some(match is_address {
            true => value,
            false => self.base.wrapping_add(value),
        })
    }

    /// Returns the value with a `tag` in the dynamic section.
    pub fn entry<M: Memory>(self, memory: M, tag: u64) -> Option<u64> {
        if self.dynamic == 0 {
            return None;
        }
        for i in 0..MAX_DYNAMIC_ENTRIES {
            let at = self.dynamic.wrapping_add(16 * i);
            let (found, value) = (memory.u64(at)?, memory.u64(at.wrapping_add(8))?);
            if found == 0 {
                return None;
            }
            if found == tag {
                return Some(value);
            }
        }
        None
    }

    /// Finds a symbol that the object defines, by name.
    pub fn symbol<M: Memory>(self, memory: M, name: &str) -> Option<DynamicSymbol> {
        const DT_STRTAB: u64 = 5;
        const DT_SYMTAB: u64 = 6;
        const DT_GNU_HASH: u64 = 0x6fff_fef5;
        let table = self.section(memory, DT_GNU_HASH)?;
        let hash = gnu_hash(name);
        let head = |offset: u64| memory.u32(table.wrapping_add(offset));
        let (buckets, first, words, shift) = (head(0)?, head(4)?, head(8)?, head(12)?);
        if buckets == 0 || words == 0 {
            return None;
        }
        // A Bloom filter tells for most names that the object does not define them.
        let bloom = table.wrapping_add(16);
        let word = memory.u64(bloom.wrapping_add(8 * u64::from((hash / 64) % words)))?;
        let bits = 1u64 << (hash % 64) | 1u64 << (hash.checked_shr(shift).unwrap_or(0) % 64);
        if word & bits != bits {
            return None;
        }
        let bucket = bloom.wrapping_add(8 * u64::from(words));
        let chain = bucket.wrapping_add(4 * u64::from(buckets));
        let begin = memory.u32(bucket.wrapping_add(4 * u64::from(hash % buckets)))?;
        if begin < first {
            return None;
        }
        let texts = self.section(memory, DT_STRTAB)?;
        let symbols = self.section(memory, DT_SYMTAB)?;
        for i in u64::from(begin)..u64::from(begin) + MAX_HASH_CHAIN {
            let entry = memory.u32(chain.wrapping_add(4 * (i - u64::from(first))))?;
            if entry | 1 == hash | 1 {
                let symbol = self.symbol_at(memory, symbols.wrapping_add(24 * i), texts, name);
                if symbol.is_some() {
                    return symbol;
                }
            }
            if entry & 1 != 0 {
                return None;
            }
        }
        None
    }

    /// Returns the symbol whose table entry is at `at`, if it has this name and the object defines
    /// it.
    fn symbol_at<M: Memory>(
        self,
        memory: M,
        at: u64,
        texts: u64,
        name: &str,
    ) -> Option<DynamicSymbol> {
        const STT_TLS: u8 = 6;
        const SHN_UNDEF: u16 = 0;
        let mut found = [0; 64];
        let wanted = name.as_bytes();
        let found = found.get_mut(..=wanted.len())?;
        let read = memory.read(texts.wrapping_add(u64::from(memory.u32(at)?)), found);
        if !read || found[..wanted.len()] != *wanted || found[wanted.len()] != 0 {
            return None;
        }
        if memory.u16(at.wrapping_add(6))? == SHN_UNDEF {
            return None;
        }
        let value = memory.u64(at.wrapping_add(8))?;
        let is_local = memory.u8(at.wrapping_add(4))? & 15 == STT_TLS;
        Some(DynamicSymbol {
            address: if is_local {
                value
            } else {
                self.base.wrapping_add(value)
            },
            size: memory.u64(at.wrapping_add(16))?,
        })
    }
}

/// Computes the hash of a name in a GNU hash table.
fn gnu_hash(name: &str) -> u32 {
    let mix = |hash: u32, byte: u8| hash.wrapping_mul(33).wrapping_add(byte.into());
    name.bytes().fold(5381, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in which each word at an address is the same.
    #[derive(Clone, Copy)]
    struct UniformMemory(u64);

    impl Memory for UniformMemory {
        fn read(self, _at: u64, to: &mut [u8]) -> bool {
            let word = self.0.to_ne_bytes();
            to.iter_mut()
                .zip(word.iter().cycle())
                .for_each(|(to, byte)| *to = *byte);
            true
        }
    }

    /// Addresses of another program may be any numbers.
    #[test]
    fn addresses_at_the_end_of_memory_cause_no_overflow() {
        for word in [5, 6, 21, 0x6fff_fef5, u64::MAX, u64::MAX / 3] {
            for base in [0, u64::MAX - 255, u64::MAX] {
                for dynamic in [16, u64::MAX - 7] {
                    let object = LoadedObject::at(base, dynamic);
                    let memory = UniformMemory(word);
                    let _ = object.symbol(memory, "PL_revision");
                    let _ = object.section(memory, word);
                }
            }
        }
    }
}
