//! How much memory the machine has left. Results never depend on it.

use std::path::Path;

use super::read_to_string;

/// Bytes that could be taken without swapping, within the limits of the control groups (version 2) that this
/// process is in. `None` where the system does not say, which only Linux does.
pub fn available() -> Option<u64> {
    let machine = of_machine(&read("/proc/meminfo")?)?;
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let groups = Path::new(own.unwrap_or_default()).ancestors();
    let limits = groups.filter_map(|group| {
        let folder = Path::new("/sys/fs/cgroup").join(group);
        let number = |file: &str| read(folder.join(file))?.trim().parse::<u64>().ok();
        // A group without a limit says `max`.
        Some(number("memory.max")?.saturating_sub(number("memory.current")?))
    });
    Some(limits.fold(machine, u64::min))
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    read_to_string(path.as_ref()).ok()
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
