//! The rows of packages in the table of REST routes.

use axum::routing::{delete, get, post};

use super::routes::packages;
use super::table::{Body, Operation, ResponseBody, of, row};
use crate::api::environments::EnvironmentTable;
use crate::api::packages::{PackageTable, PackagesBody, PackagesReply};

const PACKAGES: Option<Body> =
    Some((of::<PackagesBody>, r#"{"packages": ["requests>=2.28.0"], "session_id": "docs"}"#));
const CHANGED: ResponseBody = ResponseBody::Json(of::<PackagesReply>);

pub(super) const OPERATIONS: &[Operation] = &[
    row(
        ("get", "/api/v1/environments"),
        || get(packages::environments),
        ("list_environments", "packages", "List the environments that sessions can name"),
        None,
        ResponseBody::Json(of::<EnvironmentTable>),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}/packages/lock"),
        || get(packages::lock),
        ("freeze_packages", "packages", "Lock the packages of a session, with hashes"),
        None,
        ResponseBody::Other("text/plain"),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}/packages"),
        || get(packages::list),
        ("list_packages", "packages", "List the packages of a session"),
        None,
        ResponseBody::Json(of::<PackageTable>),
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/packages"),
        || post(packages::install),
        ("install_packages", "packages", "Install packages into a session"),
        PACKAGES,
        CHANGED,
    ),
    row(
        ("delete", "/api/v1/sessions/{session_id}/packages/{name}"),
        || delete(packages::uninstall),
        ("uninstall_package", "packages", "Remove a package from a session"),
        None,
        CHANGED,
    ),
    row(
        ("post", "/pip_install"),
        || post(packages::pip_install),
        ("pip_install", "packages", "Install a package; a refusal has `success` false"),
        PACKAGES,
        CHANGED,
    ),
    row(
        ("post", "/pip/install"),
        || post(packages::pip_install),
        ("pip_install_older", "packages", "Install a package; a refusal has `success` false"),
        PACKAGES,
        CHANGED,
    ),
];
