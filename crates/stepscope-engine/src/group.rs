//! Groups the separate traces of one folder that are ranks of one job.
//!
//! Two conservative rules, because showing two unrelated programs as one run is worse than showing
//! one job as several:
//!
//! 1. Names that differ only in a rank (`x.rank0.pt.trace.json.gz`, `dlrm_rank3`,
//!    `worker2_step_12.TIME`): at least two distinct ranks make a run. If a rank occurs several
//!    times (successive captures of one job), the first files of all ranks are one run, the second
//!    files another, and so on.
//! 2. Kineto's `HOST_PID.TIME.pt.trace.json`: the name contains no rank, so it is read from the
//!    file's head (`distributedInfo`). Files of one world size with distinct ranks, written within
//!    two minutes of each other, are a run.

use crate::files::head::head_of;
use crate::found_run::FoundFile;
use crate::names::{self, NameClass};

/// Maximum time between the files of one job: ranks write at nearly the same time.
const TOGETHER_NS: i64 = 120_000_000_000;
/// Kineto writes `distributedInfo` after its device list; a thousand devices fit in here.
const HEAD_BYTES: usize = 256 << 10;
/// Maximum number of heads to read in one folder.
const MAX_HEADS: usize = 4_096;

/// Common part of the names of the logs of `torch.compile`, `#` for the rank.
const COMPILE_LOGS: &str = "dedicated_log_torch_trace_rank_#";

/// The files of one run.
#[derive(Debug)]
pub(crate) struct Job {
    /// The common part of the members' names, with `*` for the rank; `None` for a single file.
    pub(crate) family: Option<String>,
    /// Files in order of rank.
    pub(crate) files: Vec<FoundFile>,
}

impl Job {
    pub(crate) fn single(file: FoundFile) -> Self {
        Self {
            family: None,
            files: vec![file],
        }
    }
}

/// Groups the separate traces of one folder into runs, in the order of their names.
pub(crate) fn jobs(files: Vec<FoundFile>) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut families: Vec<(String, Vec<(i64, FoundFile)>)> = Vec::new();
    let mut workers = Vec::new();
    for file in files {
        let stem = names::stem(&file.name);
        if let Some(mut ranked) = names::ranked(stem) {
            if file.class == NameClass::CompileLog {
                // Random letters follow the rank. The logs of one job are written at the same time.
                COMPILE_LOGS.clone_into(&mut ranked.family);
                ranked.written = file.stamp.modified_ns;
            }
            // Two formats of one job are two runs.
            let family = format!("{}{}", ranked.family, extension(&file.name, stem));
            let member = (ranked.written, file);
            match families.iter_mut().find(|known| known.0 == family) {
                Some(known) => known.1.push(member),
                None => families.push((family, vec![member])),
            }
        } else if let Some((_, time)) = names::kineto_worker(stem) {
            workers.push((time, file));
        } else {
            jobs.push(Job::single(file));
        }
    }
    for (family, members) in families {
        jobs.extend(captures(&family, members));
    }
    jobs.extend(kineto(workers));
    jobs.sort_by(|a, b| a.files[0].path.cmp(&b.files[0].path));
    jobs
}

fn extension<'a>(name: &'a str, stem: &str) -> &'a str {
    let extension = name.strip_prefix(stem).unwrap_or_default();
    extension.strip_suffix(".gz").unwrap_or(extension)
}

/// Splits a family into captures: the n-th file of each rank belongs to the n-th capture.
fn captures(family: &str, mut members: Vec<(i64, FoundFile)>) -> Vec<Job> {
    members.sort_by(|a, b| (a.0, &a.1.path).cmp(&(b.0, &b.1.path)));
    let mut captures: Vec<Vec<FoundFile>> = Vec::new();
    for (_, file) in members {
        let place = captures
            .iter()
            .position(|capture| capture.iter().all(|other| other.rank != file.rank));
        match place {
            Some(at) => captures[at].push(file),
            None => captures.push(vec![file]),
        }
    }
    let several = captures.len() > 1;
    let mut jobs = Vec::new();
    for (number, mut files) in captures.into_iter().enumerate() {
        if files.len() == 1 {
            jobs.extend(files.into_iter().map(Job::single));
            continue;
        }
        files.sort_by_key(|file| file.rank);
        let mut family = family.replace('#', "*");
        if several {
            family = format!("{family} ({})", number + 1);
        }
        jobs.push(Job {
            family: Some(family),
            files,
        });
    }
    jobs
}

/// Groups kineto's files without a rank in the name.
fn kineto(mut files: Vec<(i64, FoundFile)>) -> Vec<Job> {
    let worker = |file: &FoundFile| {
        names::kineto_worker(names::stem(&file.name)).map(|(worker, _)| worker.to_owned())
    };
    let first = files.first().and_then(|(_, file)| worker(file));
    let one_worker = files.iter().all(|(_, file)| worker(file) == first);
    if one_worker || files.len() > MAX_HEADS {
        return files
            .into_iter()
            .map(|(_, file)| Job::single(file))
            .collect();
    }
    files.sort_by(|a, b| (a.0, &a.1.path).cmp(&(b.0, &b.1.path)));
    let mut jobs = Vec::new();
    // Groups that are still incomplete: world size, time of the first, members.
    let mut open: Vec<(u32, i64, Vec<FoundFile>)> = Vec::new();
    for (time, mut file) in files {
        let Some((rank, world)) = rank_in_head(&file).filter(|told| told.1 > 1) else {
            jobs.push(Job::single(file));
            continue;
        };
        file.rank = Some(rank);
        let place = open.iter_mut().find(|(size, begun, members)| {
            *size == world
                && time.saturating_sub(*begun) <= TOGETHER_NS
                && members.iter().all(|other| other.rank != Some(rank))
        });
        match place {
            Some((_, _, members)) => members.push(file),
            None => open.push((world, time, vec![file])),
        }
    }
    for (world, begun, mut files) in open {
        if files.len() == 1 {
            jobs.extend(files.into_iter().map(Job::single));
            continue;
        }
        files.sort_by_key(|file| file.rank);
        jobs.push(Job {
            family: Some(format!("{world} ranks {}", begun / 1_000_000)),
            files,
        });
    }
    jobs
}

/// Reads rank and world size from the head of a kineto file.
fn rank_in_head(file: &FoundFile) -> Option<(u32, u32)> {
    let head = head_of(&file.path, file.place.as_ref(), HEAD_BYTES).ok()?;
    let text = String::from_utf8_lossy(&head);
    let (_, info) = text.split_once("\"distributedInfo\"")?;
    let number = |key: &str| {
        let (_, value) = info.split_once(key)?;
        let value = value.trim_start().strip_prefix(':')?.trim_start();
        let digits = value.bytes().take_while(u8::is_ascii_digit).count();
        value[..digits].parse().ok()
    };
    Some((number("\"rank\"")?, number("\"world_size\"")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Stamp;

    fn sorted(names: &[&str]) -> Vec<String> {
        let files = names
            .iter()
            .map(|name| FoundFile {
                path: name.into(),
                place: None,
                name: (*name).to_owned(),
                class: NameClass::TraceJson,
                stamp: Stamp::default(),
                rank: names::ranked(names::stem(name)).map(|found| found.rank),
            })
            .collect();
        jobs(files)
            .into_iter()
            .map(|job| {
                let files: Vec<_> = job.files.iter().map(|file| file.name.as_str()).collect();
                format!("{}: {}", job.family.unwrap_or_default(), files.join(" "))
            })
            .collect()
    }

    #[test]
    fn names_that_differ_in_the_rank_are_one_run() {
        assert_eq!(
            sorted(&["x.rank10.json", "x.rank0.json", "y.rank0.json", "z.json"]),
            [
                "x.rank*.json: x.rank0.json x.rank10.json",
                ": y.rank0.json",
                ": z.json"
            ]
        );
    }

    #[test]
    fn unrelated_names_with_ranks_stay_apart() {
        assert_eq!(
            sorted(&["a_rank3of8.json", "b_rank0of8.json"]),
            [": a_rank3of8.json", ": b_rank0of8.json"]
        );
    }

    #[test]
    fn captures_of_one_job_differ_by_time() {
        assert_eq!(
            sorted(&[
                "w.rank0.1694128201545.json",
                "w.rank0.1694128209000.json",
                "w.rank1.1694128201550.json",
                "w.rank1.1694128209001.json",
            ]),
            [
                "w.rank*.@.json (1): w.rank0.1694128201545.json w.rank1.1694128201550.json",
                "w.rank*.@.json (2): w.rank0.1694128209000.json w.rank1.1694128209001.json",
            ]
        );
    }

    #[test]
    fn one_kineto_worker_is_never_grouped() {
        assert_eq!(
            sorted(&[
                "h_1.1694128201545.pt.trace.json",
                "h_1.1694128201550.pt.trace.json"
            ]),
            [
                ": h_1.1694128201545.pt.trace.json",
                ": h_1.1694128201550.pt.trace.json"
            ]
        );
    }

    #[test]
    fn kineto_workers_are_grouped_by_what_their_heads_say() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (name, rank, world) in [
            ("h_1.1694128201545.pt.trace.json", 1, 2),
            ("h_2.1694128201550.pt.trace.json", 0, 2),
            // Hours later, by another program: not the same job.
            ("h_3.1694198201550.pt.trace.json", 0, 2),
            ("h_4.1694128201551.pt.trace.json", 0, 1),
        ] {
            let path = dir.path().join(name);
            let text = format!(
                "{{\"schemaVersion\":1,\"distributedInfo\": {{\"backend\":\"nccl\",\"rank\": {rank}, \"world_size\": {world}}},"
            );
            std::fs::write(&path, text).unwrap();
            files.push(FoundFile {
                path,
                place: None,
                name: name.to_owned(),
                class: NameClass::TraceJson,
                stamp: Stamp::default(),
                rank: None,
            });
        }
        let sizes: Vec<_> = jobs(files)
            .iter()
            .map(|job| {
                let ranks: Vec<_> = job.files.iter().map(|file| file.rank).collect();
                (job.family.is_some(), ranks)
            })
            .collect();
        assert_eq!(
            sizes,
            [
                (true, vec![Some(0), Some(1)]),
                (false, vec![Some(0)]),
                (false, vec![None]),
            ]
        );
    }
}
