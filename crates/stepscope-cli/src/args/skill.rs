//! The arguments of `stepscope skill`.

use std::path::PathBuf;

use clap::Args;

/// `stepscope skill`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        stepscope skill ~/.claude/skills    for Claude Code, in every project\n  \
        stepscope skill .claude/skills      for Claude Code, in this project\n  \
        stepscope skill .agents/skills      for Codex, VS Code and others, in this project\n\n\
        Writes DIR/stepscope/SKILL.md and references: the method, the commands, the kinds of reports and the tables of\n\
        SQL of this version. Run it again after an update: it replaces the files that it wrote, and refuses to replace\n\
        other or changed ones.")]
pub struct Skill {
    /// Folder of the assistant's skills, which is created if necessary
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Replace files that were changed or come from elsewhere
    #[arg(long)]
    pub force: bool,
}
