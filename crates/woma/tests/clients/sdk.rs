//! The packages in `clients/`, with their own tests against the real server, and a client that a
//! generator makes from the OpenAPI document.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use tokio::process::Command;

use crate::programs::{fetched, node, own, run, run_to_end};
use crate::server::{Servers, data_dir, setting};
use crate::trial;

/// Limit of one suite, which takes about twenty seconds on an idle machine.
const SUITE: Duration = Duration::from_mins(5);

pub(crate) fn trials(servers: &Arc<Servers>) -> Vec<Trial> {
    vec![
        trial("the Python package passes its tests", servers, |servers| async move {
            let mut tests = python();
            tests.args(["-m", "pytest"]);
            suite(with_server(&mut tests, &servers).await).await;
        }),
        trial("the Python package is typed strictly", servers, |_| async {
            suite(python().args(["-m", "mypy", "--cache-dir", "/dev/null"])).await;
        }),
        trial("the TypeScript package passes its tests", servers, |servers| async move {
            let folder = data_dir();
            let package = copy(folder.path());
            let compiler = package.join("node_modules/typescript/bin/tsc");
            run(node(&compiler).current_dir(&package).args(["-p", "."])).await;
            let mut tests = node(Path::new("--test"));
            tests.current_dir(&package).env("SDK_PAGE", root().join("docs/SDK.md"));
            suite(with_server(&mut tests, &servers).await).await;
        }),
        trial("a client is generated from the OpenAPI document", servers, generated),
    ]
}

/// Warnings are failures: what the generator leaves out is missing in the client.
async fn generated(servers: Arc<Servers>) {
    let folder = data_dir();
    let made = folder.path().join("generated");
    let mut generator = fetched("sdk/bin/openapi-python-client");
    // It formats what it has made with ruff, which comes with it.
    generator.env("PATH", path_with(&setting("WOMA_TEST_CLIENTS").join("sdk/bin")));
    generator.args(["generate", "--meta", "none", "--fail-on-warning", "--path"]);
    generator.arg(root().join("docs/openapi.json")).arg("--output-path").arg(&made);
    run(&mut generator).await;
    let mut program = fetched("sdk/bin/python");
    program.arg("-B").arg(own("python/with_generated.py")).env("PYTHONPATH", folder.path());
    run(program.arg(&servers.plain().await.url)).await;
}

/// The interpreter with what the Python package needs, in its folder.
fn python() -> Command {
    let mut command = fetched("sdk/bin/python");
    command.current_dir(root().join("clients/python"));
    command.env("PYTHONPATH", root().join("clients/python/src"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A copy of the TypeScript package, with the compiler that was fetched.
fn copy(folder: &Path) -> PathBuf {
    let (source, package) = (root().join("clients/typescript"), folder.join("package"));
    for part in ["src", "tests"] {
        fs::create_dir_all(package.join(part)).unwrap();
        for entry in fs::read_dir(source.join(part)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), package.join(part).join(entry.file_name())).unwrap();
        }
    }
    for name in ["package.json", "tsconfig.json", "README.md"] {
        fs::copy(source.join(name), package.join(name)).unwrap();
    }
    let modules = setting("WOMA_TEST_CLIENTS").join("typescript/node_modules");
    symlink(modules, package.join("node_modules")).unwrap();
    package
}

/// Adds the variables that the tests of both packages need: a server, and the program for others.
async fn with_server<'a>(command: &'a mut Command, servers: &Servers) -> &'a mut Command {
    command.env("WOMA_URL", &servers.plain().await.url);
    command.env("WOMA_BIN", env!("CARGO_BIN_EXE_woma")).env("WOMA_ENV", setting("WOMA_TEST_ENV"))
}

async fn suite(command: &mut Command) {
    let (code, stdout, stderr) = run_to_end(command, SUITE).await;
    assert_eq!(code, Some(0), "{:?}\n{stdout}\n{stderr}", command.as_std());
}

fn path_with(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    path
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
