//! Sizes as people write them, read in one way wherever they are said.

/// Bytes of `512m`, `2GiB`, `1t` or a bare number; nothing where it is no size, or too large a one.
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
