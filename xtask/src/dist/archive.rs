//! Archives: reproducible tarballs, their contents, and checksums.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use crate::shell;

/// Makes an archive of a folder. The same content gives the same bytes, for every user and at any time.
pub(super) fn pack(folder: &Path, date: &str, archive: &Path) -> Result<()> {
    let parent = folder.parent().context("a folder without a parent")?;
    let name = folder.file_name().context("a folder without a name")?;
    let plain = archive.with_extension("");
    shell::run(
        shell::program("tar")
            .args(["--create", "--format=ustar", "--sort=name"])
            .args(["--owner=0", "--group=0", "--numeric-owner"])
            .args(["--mode=u=rwX,go=rX", &format!("--mtime=@{date}")])
            .arg("--file")
            .arg(&plain)
            .arg("--directory")
            .arg(parent)
            .arg(name),
    )?;
    // Without the name and the time of the file.
    shell::run(
        shell::program("gzip")
            .args(["--no-name", "--best", "--force"])
            .arg(&plain),
    )?;
    ensure!(archive.exists(), "gzip wrote no {}", archive.display());
    Ok(())
}

/// Lists the files of a `.tar.gz`, without its top folder.
pub(super) fn files(archive: &Path) -> Result<BTreeSet<String>> {
    let listed = shell::output(shell::program("tar").arg("-tzf").arg(archive))?;
    let files = listed.lines().filter(|line| !line.ends_with('/'));
    let files = files.map(|line| line.split_once('/').map_or(line, |(_top, rest)| rest));
    Ok(files.map(str::to_owned).collect())
}

/// Unpacks a `.tar.gz` into a folder, without its top folder.
pub(super) fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    shell::run(
        shell::program("tar")
            .args(["--strip-components=1", "-xzf"])
            .arg(archive)
            .arg("--directory")
            .arg(folder),
    )
}

/// Writes `FILE.sha256` next to a file, for `sha256sum --check`.
pub(super) fn write_checksum(file: &Path) -> Result<()> {
    let folder = file.parent().context("a file without a folder")?;
    let name = file.file_name().context("a file without a name")?;
    let mut command = shell::program("sha256sum");
    command.current_dir(folder).arg(name).stdin(Stdio::null());
    let line = shell::output(&mut command)?;
    let mut path = file.as_os_str().to_owned();
    path.push(".sha256");
    let path = PathBuf::from(path);
    std::fs::write(&path, line).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the size of a file and checks that it is at most `limit` bytes.
pub(super) fn check_size(file: &Path, limit: u64) -> Result<u64> {
    let size = std::fs::metadata(file)?.len();
    ensure!(
        size <= limit,
        "{} has {size} bytes, and at most {limit} are allowed",
        file.display()
    );
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn same_content_gives_the_same_archive_and_its_checksum() {
        let home = folder("pack");
        let mut made = Vec::new();
        for (name, order) in [("one", ["b", "a"]), ("two", ["a", "b"])] {
            let top = home.join(name).join("top");
            std::fs::create_dir_all(&top).unwrap();
            for file in order {
                std::fs::write(top.join(file), file).unwrap();
            }
            let archive = home.join(name).join("top.tar.gz");
            pack(&top, "1000000000", &archive).unwrap();
            assert_eq!(
                files(&archive).unwrap(),
                BTreeSet::from(["a".to_owned(), "b".to_owned()])
            );
            write_checksum(&archive).unwrap();
            let sum = std::fs::read_to_string(home.join(name).join("top.tar.gz.sha256")).unwrap();
            assert!(sum.len() > 64 && sum.ends_with("  top.tar.gz\n"), "{sum}");
            made.push((shell::read(&archive).unwrap(), sum));
        }
        assert_eq!(made[0], made[1]);
        let again = home.join("again");
        unpack(&home.join("one/top.tar.gz"), &again).unwrap();
        assert_eq!(shell::read(&again.join("a")).unwrap(), b"a");
        assert!(check_size(&again.join("a"), 0).is_err());
        assert_eq!(check_size(&again.join("a"), 1).unwrap(), 1);
        std::fs::remove_dir_all(home).unwrap();
    }
}
