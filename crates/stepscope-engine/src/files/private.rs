//! Files and folders with owner-only access, and ownership checks of existing ones.
//!
//! Traces and reports may hold confidential data. Cache entries are used without reading the
//! original trace, so an entry that another user wrote would be shown as the trace's content.

use std::fs::DirBuilder;
use std::io;
use std::path::Path;

/// Creates a folder and its missing parents with owner-only access. Existing folders are unchanged.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Returns whether a folder belongs to the user. If other users can write into it, restricts
/// access to the owner.
pub(crate) fn is_own_folder(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        // A link may lead to another user's folder.
        let Ok(metadata) = std::fs::symlink_metadata(path) else {
            return false;
        };
        if !metadata.is_dir() || metadata.uid() != effective_user() {
            return false;
        }
        metadata.mode() & OTHERS_WRITE == 0
            || std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).is_ok()
    }
    #[cfg(not(unix))]
    path.is_dir()
}

/// Returns whether a file belongs to the user and no other user may write to it.
pub(crate) fn is_own_file(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        std::fs::symlink_metadata(path).is_ok_and(|metadata| {
            let is_own = metadata.is_file() && metadata.uid() == effective_user();
            is_own && metadata.mode() & OTHERS_WRITE == 0
        })
    }
    #[cfg(not(unix))]
    path.is_file()
}

/// Mode bits that give write access to the group or to all users.
#[cfg(unix)]
const OTHERS_WRITE: u32 = 0o022;

/// Returns the effective user id of this process.
#[cfg(unix)]
#[allow(
    unsafe_code,
    reason = "the standard library does not tell the user's number"
)]
fn effective_user() -> u32 {
    // SAFETY: the call has no arguments, always succeeds and accesses no memory of this process.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn files_of_other_owners_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/cache");
        create_private_folder(&folder).unwrap();
        assert_eq!((mode(&folder), mode(&dir.path().join("a"))), (0o700, 0o700));
        let file = folder.join("entry");
        crate::atomic_file::replace(&file, |_| Ok(())).unwrap();
        assert_eq!(mode(&file), 0o600);
        assert!(is_own_folder(&folder) && is_own_file(&file));

        let open = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(&file, 0o620);
        assert!(!is_own_file(&file));
        open(&folder, 0o777);
        assert!(is_own_folder(&folder));
        assert_eq!(mode(&folder), 0o700, "closed to others");
        let link = dir.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(!is_own_folder(&link));
        assert!(!is_own_file(&link));
        if effective_user() == 0 {
            // Only the superuser gives files away.
            open(&file, 0o600);
            chown(&file, Some(65_534), None).unwrap();
            chown(&folder, Some(65_534), None).unwrap();
            assert!(!is_own_file(&file) && !is_own_folder(&folder));
        }
    }
}
