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

/// Returns whether a call starts work on a device, which has the call's correlation number.
pub(crate) fn launches_work(name: &str) -> bool {
    ["Launch", "Memcpy", "Memset"]
        .iter()
        .any(|part| name.contains(part))
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
        assert!(launches_work("hipModuleLaunchKernel"));
        assert!(!launches_work("hipStreamSynchronize"));
    }
}
