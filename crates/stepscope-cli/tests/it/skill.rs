//! `stepscope skill`: its commands are ones that this version takes, and it replaces no file of the user.

use std::path::{Path, PathBuf};

use crate::cli::{refusal, run, text};
use crate::documents::{check_commands, markdown_files};

/// Writes the skill below a new folder, and returns both.
fn written() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let output = skill(home.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let folder = home.path().join("skills/stepscope");
    assert_eq!(
        text(&output.stdout),
        format!("wrote SKILL.md and 6 references to {}\n", folder.display())
    );
    (home, folder)
}

fn skill(home: &Path, options: &[&str]) -> std::process::Output {
    let skills = home.join("skills");
    let arguments = ["skill", skills.to_str().unwrap()];
    run(home, &[&arguments, options].concat())
}

#[test]
fn every_command_of_the_skill_is_accepted() {
    let (_home, folder) = written();
    let files = markdown_files(&folder);
    assert_eq!(files.len(), 7);
    let count = |name: &str| check_commands(&folder.join(name));
    assert!(count("SKILL.md") >= 14);
    assert!(count("references/examples.md") >= 15);
    for file in &files {
        check_commands(file);
    }
}

#[test]
fn written_files_are_replaced_and_changed_ones_only_by_force() {
    let (home, folder) = written();
    assert!(skill(home.path(), &[]).status.success());
    let changed = folder.join("references/sql.md");
    let original = std::fs::read_to_string(&changed).unwrap();
    let first = folder.join("SKILL.md");
    for content in ["notes of the user\n".as_bytes(), b"\xff\xfe", b""] {
        std::fs::write(&changed, content).unwrap();
        // No file is written if one of them cannot be.
        std::fs::remove_file(&first).unwrap();
        let (code, error) = refusal(&skill(home.path(), &[]));
        assert_eq!(code, 1);
        let expected = format!(
            "error: cannot write {}: it exists, and is changed or of another program\nhelp: ",
            changed.display()
        );
        assert!(
            error.starts_with(&expected) && error.contains("--force"),
            "{error}"
        );
        assert!(!first.exists());
        assert_eq!(std::fs::read(&changed).unwrap(), content);
        assert!(skill(home.path(), &["--force"]).status.success());
        assert_eq!(std::fs::read_to_string(&changed).unwrap(), original);
    }
}

#[test]
fn folder_that_cannot_be_created_is_named() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("skills"), "a file").unwrap();
    let (code, error) = refusal(&skill(home.path(), &[]));
    assert_eq!(code, 1);
    assert!(
        error.starts_with("error: cannot write ") && error.contains("SKILL.md: "),
        "{error}"
    );
}
