//! Which calls of a vendor's interface are recorded.

/// Returns the name of a call without the version of the interface (`cudaLaunchKernel_v7000`), or `None` for calls that
/// only ask or set something: they take most of the records and none of the time.
pub fn recorded_call(name: &str) -> Option<&str> {
    const LEFT_OUT: [&str; 11] = [
        "Get",
        "Set",
        "Peek",
        "Query",
        "IsCapturing",
        "CaptureInfo",
        "PushCurrent",
        "PopCurrent",
        "Occupancy",
        "Attribute",
        "CanAccessPeer",
    ];
    let name = match name.rsplit_once("_v") {
        Some((plain, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => plain,
        _ => name,
    };
    let name = name
        .strip_suffix("_ptsz")
        .or_else(|| name.strip_suffix("_ptds"))
        .unwrap_or(name);
    let left_out = LEFT_OUT.iter().any(|part| name.contains(part)) || name.starts_with("__");
    (!left_out).then_some(name)
}

/// What the number of a call is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// The call starts work on a device, which has the call's number.
    Launch,
    /// The call waits, or records what others wait for: synchronisation has the call's number.
    Synchronization,
    Other,
}

/// Returns the kind of a call.
pub(crate) fn call_kind(name: &str) -> CallKind {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&["Launch", "Memcpy", "Memset"]) {
        CallKind::Launch
    } else if has(&["Synchronize", "EventRecord", "WaitEvent"]) {
        CallKind::Synchronization
    } else {
        CallKind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_only_ask_or_set_are_left_out() {
        assert_eq!(
            recorded_call("cudaLaunchKernel_v7000"),
            Some("cudaLaunchKernel")
        );
        assert_eq!(recorded_call("hipMemcpyAsync"), Some("hipMemcpyAsync"));
        assert_eq!(recorded_call("hipGetDevice"), None);
        assert_eq!(recorded_call("cudaEventQuery_v3020"), None);
        for (name, kind) in [
            ("hipModuleLaunchKernel", CallKind::Launch),
            ("cudaStreamSynchronize", CallKind::Synchronization),
            ("cuStreamWaitEvent", CallKind::Synchronization),
            ("cudaEventRecord", CallKind::Synchronization),
            ("cudaMalloc", CallKind::Other),
        ] {
            assert_eq!(call_kind(name), kind, "{name}");
        }
    }
}
