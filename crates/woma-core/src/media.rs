//! What files are, by their names.

const UNKNOWN: &str = "application/octet-stream";

/// The media type that a file's extension stands for.
pub fn of_name(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "ipynb" => "application/x-ipynb+json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "py" => "text/x-python",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "parquet" => "application/vnd.apache.parquet",
        "xls" => "application/vnd.ms-excel",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        _ => UNKNOWN,
    }
}

/// The usual extension of a picture.
pub fn extension(media_type: &str) -> &'static str {
    match media_type {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "application/pdf" => "pdf",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use super::of_name;

    #[test]
    fn extensions_are_read_in_any_case() {
        for (name, media_type) in [
            ("a.csv", "text/csv"),
            ("A.PNG", "image/png"),
            ("archive.tar.gz", "application/gzip"),
            ("noextension", "application/octet-stream"),
            (".csv", "text/csv"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(of_name(name), media_type, "{name}");
        }
    }
}
