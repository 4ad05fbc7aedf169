//! Parser for sizes such as `512m`, shared by the command line and the API.

/// Bytes of `512m`, `2GiB`, `1t` or a bare number; `None` if the text is not a size or overflows.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix("ib").or_else(|| text.strip_suffix('b')).unwrap_or(&text);
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("512m", Some(512 << 20)),
            (" 2GiB ", Some(2 << 30)),
            ("64KB", Some(64 << 10)),
            ("1t", Some(1 << 40)),
            ("33554432", Some(32 << 20)),
        ] {
            assert_eq!(bytes(text), size, "{text}");
        }
        for bad in ["", "m", "-5m", "1.5g", "1q", "99999999999999999999g", "9999999999t", "é"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
