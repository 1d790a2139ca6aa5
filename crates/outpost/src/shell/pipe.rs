//! How the stages of a pipeline ended: what the shell is asked, and how its answer is read.

/// `1,0,0,`: the status of each stage, and then the status. A trace (`set -x`) does not show it.
pub(super) const PIPE_STATUS: &str =
    "'\n}\n{ builtin printf -v __farshell_r %s, \"${PIPESTATUS[@]}\" \"$?\"; } 2>/dev/null'";

/// `1,0,0,` with the status last, or only that: the status, and all of them as [`Status::pipe`] has them.
///
/// [`Status::pipe`]: farshell_protocol::process::Status::pipe
pub(super) fn statuses(text: &[u8]) -> (i32, u64) {
    let (mut number, mut status, mut pipe) = (0u8, 0, 1);
    for byte in text {
        if *byte == b',' {
            pipe = if pipe >> 56 == 0 { pipe << 8 | u64::from(number) } else { u64::MAX };
            (status, number) = (number, 0);
        } else {
            number = number.wrapping_mul(10).wrapping_add(byte & 15);
        }
    }
    if pipe == 1 { (i32::from(number), 0) } else { (i32::from(status), pipe) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read() {
        for (text, status, pipe) in [
            ("0", 0, 0),
            ("255", 255, 0),
            ("0,0,", 0, 0x01_00_00),
            ("1,0,137,137,", 137, 0x01_01_00_89_89),
            ("1,2,3,4,5,6,6,", 6, 0x01_01_02_03_04_05_06_06),
            ("1,2,3,4,5,6,7,7,", 7, u64::MAX),
            ("1,2,3,4,5,6,7,8,9,10,10,", 10, u64::MAX),
        ] {
            assert_eq!(statuses(text.as_bytes()), (status, pipe), "{text}");
        }
    }
}
