//! The generated sample profiles equal the output of their generator, and every sample has a row in
//! the README.

use heapprof_tests::exercise::plain;
use heapprof_tests::fleet;
use heapprof_tests::harness::{bless, name, sample_profiles, valid};
use heapprof_tests::samples::made;
use heapprof_tests::wire::gzip;

#[test]
fn samples_are_what_this_file_makes() {
    let folder = sample_profiles().join("valid");
    for (file, bytes) in made() {
        if bless() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(file), &bytes).unwrap();
        }
        assert_eq!(std::fs::read(folder.join(file)).unwrap(), bytes, "{file}");
    }
}

#[test]
fn the_fleet_is_what_its_file_makes() {
    let folder = sample_profiles().join("fleet");
    for (file, profile) in fleet::files() {
        let bytes = gzip(&plain(&profile));
        if bless() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(&file), &bytes).unwrap();
        }
        assert_eq!(std::fs::read(folder.join(&file)).unwrap(), bytes, "{file}");
    }
}

#[test]
fn each_sample_has_a_row_in_the_readme() {
    let readme = std::fs::read_to_string(sample_profiles().join("README.md")).unwrap();
    for file in valid() {
        assert!(
            readme.contains(&format!("`{}`", name(&file))),
            "{}",
            name(&file)
        );
    }
    let malformed = std::fs::read_dir(sample_profiles().join("malformed")).unwrap();
    let foreign = std::fs::read_dir(sample_profiles().join("foreign")).unwrap();
    for entry in malformed.chain(foreign) {
        let path = entry.unwrap().path();
        let file = name(&path);
        if path.is_dir() {
            for sample in std::fs::read_dir(path).unwrap() {
                let sample = format!("{file}/{}", name(&sample.unwrap().path()));
                assert!(readme.contains(&format!("`{sample}`")), "{sample}");
            }
        } else {
            assert!(readme.contains(&format!("`{file}`")), "{file}");
        }
    }
}
