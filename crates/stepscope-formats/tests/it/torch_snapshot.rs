//! Snapshots of PyTorch's caching allocator: committed ones, hostile and damaged ones.

use std::sync::Arc;

use stepscope_formats::detect::{Evidence, detect};
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{
    AllocatorAction, BlockState, Diagnostic, Limits, MemorySnapshot, ReadContext, SharedBytes,
};
use stepscope_test_data::{self as traces, Corpus};

fn emitted(bytes: &[u8]) -> Result<(Probe, Arc<MemorySnapshot>), FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    read(Format::TorchSnapshot, &bytes, &context, &mut probe)?;
    let source = arg_source(Format::TorchSnapshot, &bytes, &context)?;
    let snapshot = source.memory_snapshot().unwrap().unwrap();
    Ok((probe, snapshot))
}

fn committed(name: &str) -> Vec<u8> {
    traces::bytes(&Corpus::committed().path(&format!("torch_memory/{name}")))
}

#[test]
fn segments_blocks_and_events_are_those_of_the_file() {
    let (probe, found) = emitted(&committed("cuda.pickle")).unwrap();
    assert_eq!(probe.diagnostics, []);
    assert_eq!(found.devices(), [0, 1]);
    assert!(found.is_timed && !found.from_profile);
    let pending = found.segments[0].blocks.iter();
    let pending: Vec<u64> = pending
        .filter(|block| block.state == BlockState::PendingFree)
        .map(|block| block.requested)
        .collect();
    assert_eq!(pending, [700]);
    let expandable = found.segments.iter().find(|segment| segment.is_expandable);
    assert_eq!(expandable.unwrap().size, 4 << 20);
    let failed = found.events.iter().find_map(|event| match event.action {
        AllocatorAction::OutOfMemory { device_free } => Some((event, device_free)),
        _ => None,
    });
    let (event, device_free) = failed.unwrap();
    assert_eq!((event.size, device_free), (64 << 20, 9 << 20));
    assert_eq!(
        found.stack_text(event.stack),
        "forward (train.py:12) < <module> (train.py:40)"
    );
    // Equal stacks are stored once.
    assert_eq!((found.stacks.len(), found.frames.len()), (4, 4));
    assert_eq!(found.settings.len(), 3);
}

#[test]
fn snapshots_are_recognised_by_their_content() {
    for name in ["cuda.pickle", "cpu.pickle"] {
        let found = detect(&committed(name), "x").unwrap();
        assert_eq!(
            (found.format, found.evidence),
            (Format::TorchSnapshot, Evidence::Content)
        );
    }
    let other = b"\x80\x04\x95\x0b\0\0\0\0\0\0\0}\x94\x8c\x01a\x94K\x01s.";
    let refused = detect(other, "model.pkl").unwrap_err().to_string();
    assert!(refused.contains("a Python pickle"), "{refused}");
}

/// The same small snapshot in protocols 0 and 1.
#[test]
fn old_protocols_give_the_same_snapshot() {
    let zero = b"(dp0\nVsegments\np1\n(lp2\n(dp3\nVaddress\np4\nL4096L\nsVtotal_size\np5\nI512\nsVblocks\np6\n(lp7\n(dp8\nVsize\np9\nI512\nsVstate\np10\nVactive_allocated\np11\nsVhistory\np12\n(lp13\n(dp14\nVreal_size\np15\nI500\nsVframes\np16\n(lp17\n(dp18\nVname\np19\nVf\\u00e9\np20\nsasasasas.";
    let one = b"}q\0(X\x08\0\0\0segments]q\x01}q\x02(X\x07\0\0\0addressM\0\x10X\x0a\0\0\0total_sizeM\0\x02X\x06\0\0\0blocks]q\x03}q\x04(X\x04\0\0\0sizeM\0\x02X\x05\0\0\0stateX\x10\0\0\0active_allocatedX\x07\0\0\0history]q\x05}q\x06(X\x09\0\0\0real_sizeM\xf4\x01X\x06\0\0\0frames]q\x07}q\x08X\x04\0\0\0nameX\x03\0\0\0f\xc3\xa9sauaua" ;
    let mut one = one.to_vec();
    one.extend_from_slice(b"uau.");
    let (_, from_zero) = emitted(zero).unwrap();
    let block = from_zero.segments[0].blocks[0];
    assert_eq!((block.size, block.requested), (512, 500));
    assert_eq!(from_zero.stack_text(block.stack), "fé");
    for bytes in [&zero[..], &one] {
        assert_eq!(detect(bytes, "x").unwrap().format, Format::TorchSnapshot);
        assert_eq!(emitted(bytes).unwrap().1.segments, from_zero.segments);
    }
}

#[test]
fn pickles_that_run_code_are_refused() {
    for (opcodes, name) in [
        (&b"cos\nsystem\n"[..], "GLOBAL"),
        (b"\x8c\x02os\x8c\x06system\x93", "STACK_GLOBAL"),
        (b"K\x01)R", "REDUCE"),
        (b"}}b", "BUILD"),
        (b"(ios\nsystem\n", "INST"),
        (b"(K\x01o", "OBJ"),
        (b"K\x01)\x81", "NEWOBJ"),
        (b"K\x01)}\x92", "NEWOBJ_EX"),
        (b"\x82\x01", "EXT1"),
        (b"\x83\x01\0", "EXT2"),
        (b"\x84\x01\0\0\0", "EXT4"),
        (b"Pid\n", "PERSID"),
        (b"K\x01Q", "BINPERSID"),
    ] {
        let mut bytes = b"\x80\x04}(\x8c\x08segments]\x8c\x01a".to_vec();
        bytes.extend_from_slice(opcodes);
        bytes.extend_from_slice(b"u.");
        let refused = emitted(&bytes).err().unwrap().to_string();
        assert!(refused.contains("asks to run code"), "{refused}");
        assert!(refused.contains(&format!("opcode {name} ")), "{refused}");
    }
}

#[test]
fn a_snapshot_cut_anywhere_gives_what_came_before() {
    let bytes = committed("cuda.pickle");
    let whole = emitted(&bytes).unwrap().1;
    let mut most = 0;
    for at in 0..bytes.len() {
        match emitted(&bytes[..at]) {
            Ok((probe, found)) => {
                assert_eq!(probe.count(Diagnostic::Truncated), 1, "at {at}");
                assert!(found.segments.len() <= whole.segments.len());
                assert!(found.events.len() <= whole.events.len());
                most = most.max(found.events.len());
            }
            Err(FormatError::Malformed { offset, .. }) => assert!(offset <= at as u64),
            Err(other) => panic!("{other} at {at}"),
        }
    }
    assert!(most + 1 >= whole.events.len(), "{most} events");
}

#[test]
fn flipped_bytes_never_panic() {
    let bytes = committed("cuda.pickle");
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            if let Ok((_, found)) = emitted(&damaged) {
                assert!(found.events.len() <= bytes.len());
            }
        }
    }
}

/// A list that is referred to many times is read at most as often as the file has bytes.
#[test]
fn shared_lists_are_not_expanded_without_bound() {
    let mut bytes = b"\x80\x02}(X\x0d\0\0\0device_traces](](".to_vec();
    for _ in 0..1000 {
        bytes.extend_from_slice(b"}U\x06actionU\x05allocs");
    }
    bytes.extend_from_slice(b"eq\x01");
    bytes.extend_from_slice(&b"h\x01".repeat(1000));
    bytes.extend_from_slice(b"eu.");
    let (probe, found) = emitted(&bytes).unwrap();
    assert!(found.events.len() <= bytes.len());
    assert!(probe.count(Diagnostic::LimitReached) > 0);
    // A list that contains itself.
    let (_, found) = emitted(b"\x80\x02}X\x08\0\0\0segments]q\x01h\x01as.").unwrap();
    assert_eq!(found.segments, []);
}
