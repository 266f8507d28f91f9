//! How much memory the machine has left. Results never depend on it.

use std::path::Path;

use super::read_to_string;

/// Bytes that could be taken without swapping, within the limit of the container if there is one. `None`
/// where the system does not say, which only Linux does.
pub fn available() -> Option<u64> {
    let read = |path: &str| read_to_string(Path::new(path)).ok();
    let machine = of_machine(&read("/proc/meminfo")?)?;
    let number = |path: &str| read(path)?.trim().parse::<u64>().ok();
    // A container without a limit says `max`, and a machine of another kind nothing.
    let limit = number("/sys/fs/cgroup/memory.max");
    let used = number("/sys/fs/cgroup/memory.current");
    let container = limit
        .zip(used)
        .map(|(limit, used)| limit.saturating_sub(used));
    Some(container.map_or(machine, |container| machine.min(container)))
}

/// `MemAvailable`, which is in units of 1024 bytes.
fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let units: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    units.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_kernel_is_read_and_no_other() {
        let text = "MemTotal:       24616200 kB\nMemAvailable:   1000 kB\nBuffers: 5 kB\n";
        assert_eq!(of_machine(text), Some(1_024_000));
        for bad in [
            "",
            "MemTotal: 5 kB",
            "MemAvailable: x kB",
            "MemAvailable: 5 MB",
        ] {
            assert_eq!(of_machine(bad), None, "{bad}");
        }
        let found = available();
        assert!(found.is_none_or(|bytes| bytes < 1 << 50));
    }
}
