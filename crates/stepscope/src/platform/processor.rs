//! The processor's model.

use std::io::Read as _;

/// Bytes of `/proc/cpuinfo` that are read: the first processor's entry.
const FIRST_ENTRY: u64 = 8 << 10;

/// Returns the model of this machine's processor, as its maker names it: `AMD EPYC 9654 96-Core Processor`. Arm
/// processors have the numbers of the maker and the part. `None` where the system does not say it.
pub fn processor_model() -> Option<String> {
    let mut text = String::new();
    let file = std::fs::File::open("/proc/cpuinfo").ok()?;
    // The rest of a character at the end is no error: what was read stays.
    let _ = file.take(FIRST_ENTRY).read_to_string(&mut text);
    model(&text)
}

/// Finds the model in the text of `/proc/cpuinfo`.
fn model(text: &str) -> Option<String> {
    let value = |wanted: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == wanted && !value.trim().is_empty()).then(|| value.trim().to_owned())
        })
    };
    value("model name").or_else(|| {
        let (maker, part) = value("CPU implementer").zip(value("CPU part"))?;
        Some(format!("Arm implementer {maker} part {part}"))
    })
}

#[cfg(test)]
mod tests {
    use super::model;

    #[test]
    fn models_of_both_families_are_found() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654 96-Core Processor\n";
        assert_eq!(
            model(x86).as_deref(),
            Some("AMD EPYC 9654 96-Core Processor")
        );
        let arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
        assert_eq!(
            model(arm).as_deref(),
            Some("Arm implementer 0x41 part 0xd40")
        );
        assert_eq!(model("processor\t: 0\nmodel name\t:\n"), None);
    }
}
