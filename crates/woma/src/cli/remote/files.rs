//! `woma files`: files of a session of a server.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::client::{encoded, encoded_path};
use super::{Client, RemoteError, finish, json_lines, line, text};
use crate::config::flags::DataOptions;
use crate::config::remote::RemoteOptions;
use crate::terminal::{tell, write_stream};

const ROWS_MAX: usize = 1_000_000;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    remote: RemoteOptions,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the files of a session: size, time, path
    List { session: String },
    /// Put a file into a session
    Upload {
        session: String,
        /// File of this machine
        file: PathBuf,
        /// Path in the session [default: the name of the file]
        #[arg(long, value_name = "PATH")]
        to: Option<String>,
    },
    /// Fetch a file of a session
    Download {
        session: String,
        /// Path in the session
        path: String,
        /// File of this machine, or `-` for standard output [default: the name of the file, in the
        /// working directory]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace a file of this machine that is there
        #[arg(long)]
        force: bool,
    },
    /// Delete files of a session
    Delete {
        session: String,
        #[arg(required = true)]
        paths: Vec<String>,
    },
}

pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    finish(act(data, options))
}

fn act(data: &DataOptions, options: &Options) -> Result<String, Box<dyn Error>> {
    let client = Client::new(options.remote.server_required(data)?);
    let told = |value: Value, plain: String| match options.json {
        true => json_lines(&[value]),
        false => plain,
    };
    match &options.command {
        Command::List { session } => {
            let files = client.rows(&of(session), "files", ROWS_MAX)?;
            Ok(if options.json { json_lines(&files) } else { files.iter().map(row).collect() })
        }
        Command::Upload { session, file, to } => {
            let reply = upload(&client, session, file, to.as_deref())?;
            let plain = line(&["uploaded", text(&reply, "path"), text(&reply, "size_human")]);
            Ok(told(reply, plain))
        }
        Command::Download { session, path, output, force } => {
            let saved =
                download(&client, session, path, Target::of(path, output.as_deref(), *force)?)?;
            Ok(match saved {
                Some(saved) if options.json => json_lines(&[saved]),
                Some(saved) => line(&["saved", text(&saved, "file")]),
                None => String::new(),
            })
        }
        Command::Delete { session, paths } => {
            let delete = |path: &String| client.delete(&at(session, path));
            let deleted = paths.iter().map(delete).collect::<Result<Vec<_>, RemoteError>>()?;
            Ok(match options.json {
                true => json_lines(&deleted),
                false => deleted.iter().map(|one| line(&["deleted", text(one, "path")])).collect(),
            })
        }
    }
}

fn of(session: &str) -> String {
    format!("/api/v1/sessions/{}/files", encoded(session))
}

fn at(session: &str, path: &str) -> String {
    format!("{}/{}", of(session), encoded_path(path))
}

fn row(file: &Value) -> String {
    let size = format!("{:>12}", file["size_bytes"].as_u64().unwrap_or_default());
    line(&[&size, text(file, "modified"), text(file, "path")])
}

fn upload(
    client: &Client,
    session: &str,
    path: &Path,
    to: Option<&str>,
) -> Result<Value, Box<dyn Error>> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let about = file.metadata().map_err(|error| format!("cannot read {shown}: {error}"))?;
    if !about.is_file() {
        return Err(
            format!("{shown} is not a file: pack a folder first, such as with tar or zip").into()
        );
    }
    let name = match to {
        Some(to) => to.to_owned(),
        None => file_name(path).ok_or_else(|| format!("{shown} has no name: use --to PATH"))?,
    };
    Ok(client.upload(&at(session, &name), file, about.len())?)
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

/// Destination of a download.
enum Target {
    Stdout,
    File { path: PathBuf, force: bool },
}

impl Target {
    fn of(remote: &str, output: Option<&Path>, force: bool) -> Result<Self, String> {
        match output {
            Some(path) if path.as_os_str() == "-" => Ok(Self::Stdout),
            Some(path) => Ok(Self::File { path: path.to_owned(), force }),
            // The last part only: a path of the session never leaves the working directory.
            None => match file_name(Path::new(remote)) {
                Some(name) => Ok(Self::File { path: name.into(), force }),
                None => Err(format!("`{remote}` has no name: use --output FILE")),
            },
        }
    }
}

/// Saves a file and returns its name and size; standard output has neither.
fn download(
    client: &Client,
    session: &str,
    path: &str,
    target: Target,
) -> Result<Option<Value>, Box<dyn Error>> {
    let remote = at(session, path);
    let (path, force) = match target {
        Target::Stdout => {
            write_stream(|stdout| client.download(&remote, stdout).map(drop))?;
            return Ok(None);
        }
        Target::File { path, force } => (path, force),
    };
    let shown = path.display().to_string();
    if !force && path.symlink_metadata().is_ok() {
        return Err(format!("{shown} exists: use --force to replace it, or --output FILE").into());
    }
    // Beside the final place: a download that breaks off leaves nothing there.
    let name = path.file_name().ok_or_else(|| format!("{shown} is not a file"))?.to_owned();
    let mut part_name = std::ffi::OsString::from(".");
    part_name.push(name);
    part_name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(part_name);
    let saved = save(client, &remote, &part).and_then(|bytes| {
        std::fs::rename(&part, &path).map_err(|error| format!("cannot write {shown}: {error}"))?;
        Ok(bytes)
    });
    match saved {
        Ok(bytes) => Ok(Some(serde_json::json!({ "file": shown, "size_bytes": bytes }))),
        Err(error) => {
            if let Err(error) = std::fs::remove_file(&part)
                && error.kind() != io::ErrorKind::NotFound
            {
                tell(&format!("woma: cannot remove {}: {error}", part.display()));
            }
            Err(error)
        }
    }
}

fn save(client: &Client, remote: &str, part: &Path) -> Result<u64, Box<dyn Error>> {
    let cannot = |error: io::Error| format!("cannot write {}: {error}", part.display());
    let mut file = File::create_new(part).map_err(cannot)?;
    let bytes = client.download(remote, &mut file)?;
    file.flush().and_then(|()| file.sync_all()).map_err(cannot)?;
    Ok(bytes)
}
