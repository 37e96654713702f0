//! Rows of kernels on a device that is drawn as text.

use stepscope_store::ascii_trace;

use super::*;

/// Name, count, total, p50 and p95 in microseconds.
fn rows(drawn: &str, by: KernelGrouping) -> Vec<(String, u64, i128, f64, f64)> {
    let trace = ascii_trace::trace(drawn);
    let cancel = Cancel::default();
    let devices = Devices::from_trace(&trace, &cancel).unwrap();
    let launches = Launches::from_trace(&trace, &devices, &cancel).unwrap();
    let span = trace.span();
    let found = kernels(&trace, &devices, &launches, by, &span, &cancel).unwrap();
    let name = |row: &KernelRow| {
        let name = row.key.name.map(|name| trace.name(name).to_owned());
        name.unwrap_or_default()
    };
    found
        .rows
        .iter()
        .map(|row| {
            let us = |ns: f64| (ns / 10.0).round() / 100.0;
            (
                name(row),
                row.count,
                row.total_ps / 1_000_000,
                us(row.p50_ns),
                us(row.p95_ns),
            )
        })
        .collect()
}

#[test]
fn percentiles_interpolate_between_launches() {
    // Two streams.
    let drawn = "
        gpu/7 #device | gemm-  gemm gemm------
        gpu/8 #device | add    add-   gemm--
        ";
    let found = rows(drawn, KernelGrouping::Name);
    let gemm = found.iter().find(|row| row.0 == "gemm").unwrap();
    // 4, 5, 6, 10: the middle of 5 and 6, and 6 + 0.85 * 4.
    assert_eq!((gemm.1, gemm.2, gemm.3, gemm.4), (4, 25, 5.5, 9.4));
    let add = found.iter().find(|row| row.0 == "add").unwrap();
    assert_eq!((add.1, add.2, add.3), (2, 7, 3.5));
}

#[test]
fn work_without_a_known_launch_is_one_row() {
    let drawn = "
        gpu/7 #device | gemm--  add---
        ";
    let found = rows(drawn, KernelGrouping::Operation);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].1, found[0].2), (2, 12));
}
