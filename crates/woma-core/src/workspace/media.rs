//! Media types by file name.

const UNKNOWN: &str = "application/octet-stream";

/// The media type that a file's extension stands for.
pub fn of_name(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "txt" | "log" | "toml" | "ini" | "tex" => "text/plain",
        "css" => "text/css",
        "js" => "text/javascript",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "jsonl" | "ndjson" => "application/jsonl",
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
        "bmp" => "image/bmp",
        "tif" | "tiff" => "image/tiff",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "ogg" => "audio/ogg",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "db" | "sqlite" | "sqlite3" => "application/vnd.sqlite3",
        "sql" => "application/sql",
        "parquet" => "application/vnd.apache.parquet",
        "xls" => "application/vnd.ms-excel",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        _ => UNKNOWN,
    }
}

/// The media type of a picture if it is one that we know: what a cell calls it goes into records and
/// headers.
pub fn known(media_type: &str) -> &'static str {
    match media_type {
        "image/png" => "image/png",
        "image/jpeg" => "image/jpeg",
        "image/gif" => "image/gif",
        "image/webp" => "image/webp",
        "image/svg+xml" => "image/svg+xml",
        "application/pdf" => "application/pdf",
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
    use super::{extension, known, of_name};

    #[test]
    fn what_a_cell_calls_its_pictures_is_one_of_a_list() {
        for media_type in ["image/png", "image/svg+xml", "application/pdf"] {
            assert_eq!(known(media_type), media_type);
            assert_ne!(extension(media_type), "bin");
        }
        for media_type in ["", "image/PNG", "text/html", "image/png\r\nX: y", &"x".repeat(99)] {
            assert_eq!(known(media_type), "application/octet-stream");
        }
    }

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
