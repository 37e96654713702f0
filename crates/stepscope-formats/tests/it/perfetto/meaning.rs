//! What the schema offers, as the real traces at hand do not use it.

use std::io::Write as _;

use stepscope_model::Diagnostic;

use super::read;
use crate::wire::{Wire, bytes, fixed64, message, uint};

fn packet(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = Vec::new();
    fill(&mut packet);
    let mut out = Vec::new();
    message(&mut out, 1, &packet);
    out
}

fn made(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    fill(&mut out);
    out
}

fn interned(field: u32, iid: u64, text: &str) -> Vec<u8> {
    let entry = made(|out| {
        uint(out, 1, iid);
        bytes(out, 2, text.as_bytes());
    });
    made(|out| message(out, field, &entry))
}

/// Two sequences that give the same numbers different meanings, cleared state, defaults.
#[test]
fn interned_texts_belong_to_a_sequence_and_a_while() {
    let mut file = Vec::new();
    let begin = |seq: u64, at: u64, texts: &[u8], flags: u64| {
        packet(|out| {
            uint(out, 8, at);
            uint(out, 10, seq);
            uint(out, 13, flags);
            message(out, 12, texts);
            let annotation = made(|out| {
                uint(out, 1, 5);
                uint(out, 17, 6);
            });
            let event = made(|out| {
                uint(out, 9, 3);
                uint(out, 10, 1);
                uint(out, 3, 2);
                message(out, 4, &annotation);
            });
            message(out, 11, &event);
        })
    };
    let texts = |word: &str| {
        [
            interned(2, 1, &format!("{word} name")),
            interned(1, 2, &format!("{word} category")),
            interned(3, 5, &format!("{word} key")),
            interned(29, 6, &format!("{word} value")),
        ]
        .concat()
    };
    file.extend(begin(1, 1, &texts("first"), 1));
    file.extend(begin(2, 2, &texts("other"), 1));
    file.extend(begin(1, 3, &[], 2));
    file.extend(begin(1, 4, &texts("second"), 1));
    file.extend(begin(2, 5, &[], 2));
    let probe = read(file).unwrap();
    let told: Vec<String> = probe
        .instants
        .iter()
        .map(|i| format!("{}|{}|{:?}", i.name, i.category, probe.args(i.args)))
        .collect();
    let expected = |word: &str| {
        format!("{word} name|{word} category|[(\"{word} key\", \"Str(\\\"{word} value\\\")\")]")
    };
    assert_eq!(
        told,
        ["first", "other", "first", "second", "other"].map(expected)
    );
}

#[test]
fn packets_after_a_loss_wait_for_a_new_beginning() {
    let event = |at: u64, flags: u64, dropped: u64, name: &str| {
        packet(|out| {
            uint(out, 8, at);
            uint(out, 10, 1);
            uint(out, 13, flags);
            if dropped != 0 {
                uint(out, 42, dropped);
            }
            let event = made(|out| {
                uint(out, 9, 3);
                bytes(out, 23, name.as_bytes());
            });
            message(out, 11, &event);
        })
    };
    let file = [
        event(1, 1, 1, "a"),
        event(2, 2, 0, "b"),
        event(3, 2, 1, "lost"),
        event(4, 2, 0, "lost"),
        event(5, 0, 0, "free"),
        event(6, 1, 0, "c"),
        event(7, 2, 0, "d"),
    ]
    .concat();
    let probe = read(file).unwrap();
    let names: Vec<_> = probe.instants.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "free", "c", "d"]);
    assert_eq!(probe.count(Diagnostic::DroppedByWriter), 3);
}

#[test]
fn clocks_threads_counters_flows_and_arguments() {
    let mut file = packet(|out| {
        uint(out, 10, 1);
        let clocks = made(|out| {
            for (id, ns) in [(6, 1_000_000), (1, 1_700_000_000_000_000_000), (3, 400_000)] {
                let reading = made(|out| {
                    uint(out, 1, id);
                    uint(out, 2, ns);
                });
                message(out, 1, &reading);
            }
        });
        message(out, 6, &clocks);
    });
    let describe = |fill: &dyn Fn(&mut Vec<u8>)| {
        packet(|out| {
            let track = made(fill);
            message(out, 60, &track);
        })
    };
    file.extend(describe(&|out| {
        uint(out, 1, 10);
        let process = made(|out| {
            uint(out, 1, 42);
            bytes(out, 6, b"trainer");
        });
        message(out, 3, &process);
    }));
    file.extend(describe(&|out| {
        uint(out, 1, 11);
        uint(out, 5, 10);
        let thread = made(|out| {
            uint(out, 1, 42);
            uint(out, 2, 43);
            bytes(out, 5, b"loader");
        });
        message(out, 4, &thread);
    }));
    file.extend(describe(&|out| {
        uint(out, 1, 12);
        uint(out, 5, 11);
        bytes(out, 2, b"memory");
        let counter = made(|out| {
            uint(out, 3, 3);
            uint(out, 4, 1024);
            uint(out, 5, 1);
        });
        message(out, 8, &counter);
    }));
    // Sequence 1 defaults: clock 3 (400 us behind), track 11, extra counter 12.
    file.extend(packet(|out| {
        uint(out, 10, 1);
        let event = made(|out| {
            uint(out, 11, 11);
            uint(out, 31, 12);
        });
        let defaults = made(|out| {
            uint(out, 58, 3);
            message(out, 11, &event);
        });
        message(out, 59, &defaults);
    }));
    let event = |at: u64, fill: &dyn Fn(&mut Vec<u8>)| {
        packet(|out| {
            uint(out, 8, at);
            uint(out, 10, 1);
            let event = made(fill);
            message(out, 11, &event);
        })
    };
    file.extend(event(400_000, &|out| {
        uint(out, 9, 1);
        bytes(out, 23, b"load");
        bytes(out, 22, b"io");
        uint(out, 12, 2);
        fixed64(out, 47, 77);
        for (key, fill) in [
            ("flag", made(|out| uint(out, 2, 1))),
            ("big", made(|out| uint(out, 3, u64::MAX))),
            ("minus", made(|out| uint(out, 4, (-5_i64) as u64))),
            ("half", made(|out| Wire::double(out, 5, 0.5))),
            ("at", made(|out| uint(out, 7, 255))),
            (
                "nested",
                made(|out| {
                    let inner = made(|out| {
                        bytes(out, 10, b"list");
                        for number in [1, 2] {
                            let item = made(|out| uint(out, 4, number));
                            message(out, 12, &item);
                        }
                    });
                    message(out, 11, &inner);
                    let text = made(|out| {
                        bytes(out, 10, b"quo\"te");
                        bytes(out, 6, b"line\n");
                    });
                    message(out, 11, &text);
                }),
            ),
        ] {
            let annotation = made(|out| {
                bytes(out, 10, key.as_bytes());
                out.extend(&fill);
            });
            message(out, 4, &annotation);
        }
        let location = made(|out| {
            bytes(out, 2, b"train.py");
            uint(out, 4, 12);
        });
        message(out, 33, &location);
    }));
    file.extend(event(401_000, &|out| {
        uint(out, 9, 2);
        uint(out, 12, 3);
        let annotation = made(|out| {
            bytes(out, 10, b"rows");
            uint(out, 4, 9);
        });
        message(out, 4, &annotation);
    }));
    file.extend(event(402_000, &|out| {
        uint(out, 9, 3);
        bytes(out, 23, b"arrived");
        // A terminating flow, packed.
        bytes(out, 48, &77_u64.to_le_bytes());
    }));
    let probe = read(file).unwrap();
    let epoch = probe.epoch.unwrap();
    assert_eq!(epoch.origin_ns, 1_000_000);
    assert_eq!(epoch.unix_ns, Some(1_700_000_000_000_000_000));
    let thread = probe.find_track("42/43").unwrap();
    assert_eq!(
        (thread.name.as_str(), thread.parent.as_deref()),
        ("loader", Some("42"))
    );
    assert_eq!(probe.find_track("42").unwrap().name, "trainer");
    let memory = probe.find_track("track/12").unwrap();
    assert_eq!(memory.unit.as_deref(), Some("bytes"));
    assert_eq!(memory.parent.as_deref(), Some("42/43"));
    assert_eq!(
        probe.samples,
        [
            ("track/12".to_owned(), 0, 2_048.0),
            ("track/12".to_owned(), 1_000_000, 5_120.0)
        ]
    );
    let slice = &probe.slices[0];
    assert_eq!((slice.start_ps, slice.dur_ps), (0, 1_000_000));
    assert_eq!(
        (slice.name.as_str(), slice.category.as_str()),
        ("load", "io")
    );
    assert_eq!(slice.flows, [(String::new(), 77, 0)]);
    assert_eq!(probe.flows[0].direction, 2);
    let args = probe.args(slice.args);
    let args: Vec<_> = args.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        args,
        [
            "flag=Bool(true)",
            "big=Uint(18446744073709551615)",
            "minus=Int(-5)",
            "half=Double(0.5)",
            "at=Str(\"0xff\")",
            r#"nested=Json("{\"list\":[1,2],\"quo\\\"te\":\"line\\n\"}")"#,
            "source.file=Str(\"train.py\")",
            "source.line=Int(12)",
            "rows=Int(9)",
        ]
    );
    assert!(probe.diagnostics.is_empty(), "{:?}", probe.diagnostics);
}

#[test]
fn legacy_events_are_read_by_their_phase() {
    let mut file = packet(|out| {
        uint(out, 10, 1);
        let thread = made(|out| {
            uint(out, 1, 5);
            uint(out, 2, 6);
            uint(out, 6, 1_000);
            bytes(out, 5, b"main");
        });
        message(out, 44, &thread);
    });
    file.extend(packet(|out| {
        uint(out, 10, 1);
        let texts = [interned(2, 1, "work"), interned(1, 1, "net")].concat();
        message(out, 12, &texts);
    }));
    let event = |delta_us: u64, phase: u8, fill: &dyn Fn(&mut Vec<u8>)| {
        packet(|out| {
            uint(out, 10, 1);
            let legacy = made(|out| {
                uint(out, 1, 1);
                uint(out, 2, u64::from(phase));
                fill(out);
            });
            let event = made(|out| {
                uint(out, 1, delta_us);
                uint(out, 3, 1);
                message(out, 6, &legacy);
            });
            message(out, 11, &event);
        })
    };
    file.extend(event(10, b'X', &|out| uint(out, 3, 25)));
    file.extend(event(10, b'B', &|_| ()));
    file.extend(event(10, b'E', &|_| ()));
    file.extend(event(10, b'b', &|out| uint(out, 11, 9)));
    file.extend(event(10, b'e', &|out| uint(out, 11, 9)));
    file.extend(event(10, b'I', &|_| ()));
    file.extend(event(10, b'P', &|_| ()));
    let probe = read(file).unwrap();
    let origin_us = probe.epoch.unwrap().origin_ns / 1_000;
    let told: Vec<String> = probe
        .slices
        .iter()
        .map(|s| {
            let start_us = origin_us + s.start_ps / 1_000_000;
            format!("{} {start_us}+{} {}", s.track, s.dur_ps / 1_000_000, s.name)
        })
        .collect();
    assert_eq!(
        told,
        [
            "5/6 1010+25 work",
            "5/6 1020+10 work",
            "5/async/net/0x9 1040+10 work"
        ]
    );
    assert_eq!(probe.find_track("5/6").unwrap().name, "main");
    assert_eq!(probe.instants.len(), 1);
    assert_eq!(probe.count(Diagnostic::UnknownEntry), 1);
}

#[test]
fn compressed_packets_are_read_and_so_are_their_arguments() {
    let inner = packet(|out| {
        uint(out, 8, 1);
        uint(out, 10, 1);
        let event = made(|out| {
            uint(out, 9, 3);
            bytes(out, 23, b"inside");
            let annotation = made(|out| {
                bytes(out, 10, b"k");
                uint(out, 4, 3);
            });
            message(out, 4, &annotation);
        });
        message(out, 11, &event);
    });
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&inner).unwrap();
    let zlib = zlib.finish().unwrap();
    let file = packet(|out| message(out, 50, &zlib));
    let probe = read([file.clone(), inner.clone(), file].concat()).unwrap();
    assert_eq!(probe.instants.len(), 3);
    for instant in &probe.instants {
        assert_eq!(
            probe.args(instant.args),
            [("k".to_owned(), "Int(3)".to_owned())]
        );
    }
    let cut = packet(|out| message(out, 50, &zlib[..zlib.len() - 6]));
    assert_eq!(read(cut).unwrap().count(Diagnostic::BadCompression), 1);
}
