//! What must not hurt the program: many captures, clients that vanish, floods and garbage.

use super::program::{Program, request, undisturbed_checksum};
use super::{count, read, talk};

#[test]
fn a_hundred_captures_leave_nothing_behind() {
    let program = Program::start(&["--steps", "1500"]);
    talk(async {
        let mut client = program.client().await;
        let mut captures = 0;
        let mut capture = async |least: usize| {
            let answer = client.profile(request(10)).await.unwrap().into_inner();
            assert!(read(&answer.xspace).slices.len() >= least);
            captures += 1;
        };
        for _ in 0..20 {
            capture(0).await;
        }
        let before = (
            program.status("Threads"),
            program.descriptors(),
            program.status("VmRSS"),
        );
        for _ in 0..100 {
            capture(0).await;
        }
        let after = (
            program.status("Threads"),
            program.descriptors(),
            program.status("VmRSS"),
        );
        assert!(after.0 <= before.0 + 1, "threads: {before:?} {after:?}");
        assert!(after.1 <= before.1, "descriptors: {before:?} {after:?}");
        // A capture of 10 ms holds a few hundred KiB.
        assert!(after.2 < before.2 + 8_192, "memory: {before:?} {after:?}");
        let whole = client.profile(request(100)).await.unwrap().into_inner();
        assert!(count(&read(&whole.xspace), "forward") > 0);
    });
    let finished = program.finish();
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.printed("checksum"), undisturbed_checksum("1500"));
}
