//! Processor time of this process and the broker's, from `/proc`.

use std::fs;

/// `/proc/PID/stat` counts in hundredths of a second on every Linux.
const TICK_US: u64 = 10_000;

/// User and system time that a process has used. **Units**: microseconds. **Resolution**: 10 ms.
pub(crate) fn cpu_us(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, also parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * TICK_US)
}

/// Anonymous and all resident memory of a process. **Units**: bytes.
pub(crate) fn memory(pid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let figure = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    Some((figure("RssAnon:")?, figure("VmRSS:")?))
}

/// The local process that listens on the port of `address`, if it may be looked at.
pub(crate) fn listener(address: &str) -> Option<u32> {
    let port: u16 = address
        .rsplit_once(':')?
        .1
        .trim_end_matches('/')
        .parse()
        .ok()?;
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .find_map(|table| listening_inode(&fs::read_to_string(table).ok()?, port))?;
    let wanted = format!("socket:[{inode}]");
    fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let mut files = fs::read_dir(process.path().join("fd")).ok()?.flatten();
        files
            .any(|file| {
                fs::read_link(file.path()).is_ok_and(|target| target.to_str() == Some(&wanted))
            })
            .then_some(pid)
    })
}

/// Inode of the socket that listens on `port`, from the text of `/proc/net/tcp`.
fn listening_inode(table: &str, port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = fields.get(1)?.rsplit_once(':')?.1;
        (fields.get(3) == Some(&LISTEN) && u16::from_str_radix(local, 16) == Ok(port))
            .then(|| fields.get(9)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_by_the_port_it_listens_on() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", socket.local_addr().unwrap());
        assert_eq!(listener(&address), Some(std::process::id()));
        assert!(cpu_us(std::process::id()).is_some());
        let (anonymous, all) = memory(std::process::id()).unwrap();
        assert!(anonymous > 0 && all >= anonymous);
    }
}
