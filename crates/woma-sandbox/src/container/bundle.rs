//! The OCI bundle of a container: `config.json`, generated from the template and nothing else.

use std::path::Path;

use serde_json::{Value, json};

use super::{INIT_ROLE, Runtime};
use crate::steward::control::{Furnishing, RoomIds};
use crate::steward::template::{NOTHING, OUTER, PartKind, SCRATCH, Template, WORKSPACE};

/// This program, as a container sees it.
pub(super) const INIT_PROGRAM: &str = "/opt/woma/init";
/// Descriptor of pid 1's command socket: the first one that a runtime preserves; standard input
/// where it preserves none.
const COMMANDS_FD: u32 = 3;

/// Capabilities of pid 1 in the container's own user namespace. The kernel's process drops all of
/// them before it reads any user code, which the server verifies from outside.
const CAPABILITIES: [&str; 10] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_KILL",
    "CAP_NET_ADMIN",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
    "CAP_SYS_RESOURCE",
];

/// TCP buffers are charged to the whole host: minimum, initial and maximum bytes.
const TCP_BUFFERS: [(&str, &str); 2] =
    [("net.ipv4.tcp_rmem", "4096 65536 131072"), ("net.ipv4.tcp_wmem", "4096 16384 131072")];

/// Host ids of a container.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostIds {
    /// The container's root, which runtimes need while they build it; `None` if there is one id.
    pub(super) root: Option<u32>,
    /// The session's user.
    pub(super) session: u32,
}

/// Everything that differs between containers of one launcher.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) runtime: Runtime,
    pub(super) template: &'a Template,
    /// Containers have inodes of their own: overlays over the template's parts.
    pub(super) own_inodes: bool,
    pub(super) room: RoomIds,
    pub(super) ids: HostIds,
    pub(super) furnishing: Furnishing,
    /// Folder to show as the workspace, where it cannot be mounted later.
    pub(super) workspace: Option<&'a Path>,
}

/// Number of the descriptor that pid 1 has its command socket at.
pub(super) fn commands_fd(runtime: Runtime) -> u32 {
    if runtime.has_own_kernel() { 0 } else { COMMANDS_FD }
}

/// Content of `config.json`.
pub(super) fn config(plan: &Plan<'_>) -> Value {
    // A kernel of its own may know no ambient capabilities, with which another user than its root
    // would have them. That root exists in the sandbox only.
    let RoomIds { uid, gid } = match plan.runtime.has_own_kernel() {
        true => RoomIds { uid: 0, gid: 0 },
        false => plan.room,
    };
    let capabilities = CAPABILITIES;
    json!({
        "ociVersion": "1.0.2",
        "hostname": "woma",
        "root": { "path": root_of(plan), "readonly": true },
        "process": {
            "terminal": false,
            "user": { "uid": uid, "gid": gid },
            "args": [INIT_PROGRAM, INIT_ROLE, commands_fd(plan.runtime).to_string()],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
                "inheritable": capabilities,
                "ambient": capabilities,
            },
        },
        "mounts": mounts(plan),
        "linux": linux(plan),
    })
}

fn linux(plan: &Plan<'_>) -> Value {
    let kinds = ["pid", "network", "ipc", "uts", "mount", "cgroup"];
    let mut namespaces: Vec<Value> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
    if plan.runtime.has_own_kernel() {
        return json!({ "namespaces": namespaces });
    }
    namespaces.push(json!({ "type": "user" }));
    let map =
        |inside: u32, outside: u32| json!({ "containerID": inside, "hostID": outside, "size": 1 });
    let maps = |inside: u32| {
        let root = plan.ids.root.map(|root| map(0, root));
        root.into_iter().chain([map(inside, plan.ids.session)]).collect::<Vec<_>>()
    };
    let hidden = plan.template.hidden_files.iter().chain(&plan.template.hidden_folders);
    let hidden: Vec<String> = hidden.map(|name| format!("/proc/{name}")).collect();
    let sysctl: serde_json::Map<String, Value> =
        TCP_BUFFERS.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({
        "namespaces": namespaces,
        "uidMappings": maps(plan.room.uid),
        "gidMappings": maps(plan.room.gid),
        "maskedPaths": hidden,
        "sysctl": sysctl,
    })
}

fn mounts(plan: &Plan<'_>) -> Vec<Value> {
    let mut mounts = Vec::new();
    let closed = ["nosuid", "nodev", "noexec"];
    mounts.push(json!({
        "destination": "/proc", "type": "proc", "source": "proc", "options": closed,
    }));
    mounts.push(json!({
        "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
        "options": ["nosuid", "noexec", "mode=755", "size=64k"],
    }));
    for part in plan.template.parts.iter().skip(1) {
        if part.path == Path::new("/dev") {
            continue;
        }
        let (source, at) = (inside(&part.source), part.path.display().to_string());
        let has_overlay =
            plan.own_inodes && part.kind == PartKind::Static && !plan.runtime.has_own_kernel();
        mounts.push(if has_overlay {
            let layers = format!("lowerdir={source}:{OUTER}{NOTHING}");
            json!({
                "destination": at, "type": "overlay", "source": "overlay",
                "options": ["ro", "nosuid", "nodev", layers],
            })
        } else {
            json!({
                "destination": at, "type": "bind", "source": source,
                "options": ["rbind", "ro", "nosuid", "nodev"],
            })
        });
    }
    if plan.runtime.has_own_kernel() {
        mounts.extend(own_kernel_mounts(plan));
    }
    mounts
}

/// The first part of the template is its root.
fn root_of(plan: &Plan<'_>) -> String {
    plan.template.parts.first().map(|part| inside(&part.source)).unwrap_or_default()
}

/// Mounts that pid 1 makes itself elsewhere.
fn own_kernel_mounts(plan: &Plan<'_>) -> Vec<Value> {
    let RoomIds { uid, gid } = plan.room;
    let memory = |at: &str, bytes: u64, mode: &str| {
        json!({
            "destination": at, "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "nodev", format!("mode={mode}"), format!("size={bytes}"),
                        format!("uid={uid}"), format!("gid={gid}")],
        })
    };
    let Furnishing { workspace_bytes, scratch_bytes, .. } = plan.furnishing;
    let workspace = match plan.workspace {
        Some(folder) => json!({
            "destination": WORKSPACE, "type": "bind", "source": folder,
            "options": ["rbind", "rw", "nosuid", "nodev"],
        }),
        None => memory(WORKSPACE, workspace_bytes, "700"),
    };
    vec![workspace, memory(SCRATCH, scratch_bytes, "755")]
}

/// A path of the steward's root, as the launcher sees it.
fn inside(path: &Path) -> String {
    format!("{OUTER}{}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steward::template::Part;

    fn made(runtime: Runtime, workspace: Option<&Path>) -> Value {
        let part = |number: u32, path: &str, kind| Part {
            source: format!("/parts/{number}").into(),
            path: path.into(),
            kind,
        };
        let template = Template {
            parts: vec![
                part(0, "/", PartKind::Static),
                part(1, "/dev", PartKind::Live),
                part(2, "/usr", PartKind::Static),
                part(3, "/opt/woma/init", PartKind::Live),
            ],
            hidden_files: vec!["kallsyms".to_owned()],
            ..Template::default()
        };
        let furnishing = Furnishing {
            workspace_bytes: 7,
            workspace_files: 8,
            scratch_bytes: 9,
            workspace: None,
        };
        let room = RoomIds { uid: 1000, gid: 1001 };
        let ids = HostIds { root: Some(70_000), session: 70_001 };
        config(&Plan {
            runtime,
            template: &template,
            own_inodes: true,
            room,
            ids,
            furnishing,
            workspace,
        })
    }

    fn mount<'a>(config: &'a Value, at: &str) -> &'a Value {
        let mounts = config["mounts"].as_array().unwrap();
        mounts.iter().find(|mount| mount["destination"] == at).unwrap()
    }

    #[test]
    fn a_bundle_shares_nothing_with_the_host() {
        for runtime in Runtime::ALL {
            let config = made(runtime, None);
            let kinds = config["linux"]["namespaces"].as_array().unwrap();
            for kind in ["pid", "network", "ipc", "uts", "mount", "cgroup"] {
                assert!(kinds.iter().any(|it| it["type"] == kind && it.get("path").is_none()));
            }
            assert_eq!(config["root"]["readonly"], true);
            assert_eq!(config["process"]["noNewPrivileges"], true);
            let is_root = config["process"]["user"]["uid"] == 0;
            assert_eq!(is_root, runtime.has_own_kernel());
            let writable = config["mounts"].as_array().unwrap().iter().filter(|mount| {
                let options = mount["options"].as_array().unwrap();
                mount["type"] == "bind" && !options.contains(&json!("ro"))
            });
            assert_eq!(writable.count(), 0, "{config:#}");
        }
    }

    #[test]
    fn rooms_of_the_hosts_kernel_have_a_user_namespace_and_inodes_of_their_own() {
        for runtime in [Runtime::Crun, Runtime::Runc] {
            let config = made(runtime, None);
            let maps = config["linux"]["uidMappings"].as_array().unwrap();
            assert!(maps.iter().all(|map| map["hostID"].as_u64().unwrap() >= 70_000), "{maps:?}");
            assert_eq!(config["linux"]["gidMappings"][1]["containerID"], 1001);
            assert_eq!(mount(&config, "/usr")["type"], "overlay");
            assert_eq!(mount(&config, "/opt/woma/init")["type"], "bind");
            assert_eq!(config["linux"]["maskedPaths"][0], "/proc/kallsyms");
            assert_eq!(config["process"]["args"][2], "3");
        }
    }

    #[test]
    fn a_kernel_of_its_own_gets_its_folders_at_the_start() {
        let config = made(Runtime::Runsc, Some(Path::new("/sys/oci/1/workspace")));
        assert_eq!(mount(&config, WORKSPACE)["source"], "/sys/oci/1/workspace");
        assert_eq!(mount(&config, SCRATCH)["type"], "tmpfs");
        assert_eq!(config["process"]["args"][2], "0");
        assert_eq!(mount(&made(Runtime::Runsc, None), WORKSPACE)["type"], "tmpfs");
    }
}
