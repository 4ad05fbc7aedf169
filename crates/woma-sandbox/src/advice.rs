//! Advice to an operator whose machine refuses what sessions need: what refuses it, and the one
//! complete command line, for the engine that runs this process.

use std::fs;
use std::path::Path;

use crate::rung::{Rung, needed_abi};
use crate::{landlock, rung};

/// Runs this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Docker,
    Podman,
    Kubernetes,
    /// A machine, or a container of another engine.
    Plain,
}

impl Engine {
    #[cfg(test)]
    const ALL: [Self; 4] = [Self::Docker, Self::Podman, Self::Kubernetes, Self::Plain];

    pub(crate) fn detect() -> Self {
        let variable = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let exists = |path: &str| Path::new(path).exists();
        if variable || exists("/var/run/secrets/kubernetes.io") {
            Self::Kubernetes
        } else if exists("/run/.containerenv") {
            Self::Podman
        } else if exists("/.dockerenv") {
            Self::Docker
        } else {
            Self::Plain
        }
    }

    /// The complete command line, or the complete part of a manifest, that allows every wall.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Docker => {
                "docker run --user 10001:10001 --cap-drop ALL --security-opt no-new-privileges:true \
                 --security-opt seccomp=packaging/container/seccomp.json \
                 --security-opt systempaths=unconfined --security-opt apparmor=unconfined \
                 -e API_KEY -v woma:/var/lib/woma -p 127.0.0.1:8080:8080 woma"
            }
            Self::Podman => {
                "podman run --user 10001:10001 --cap-drop ALL --security-opt no-new-privileges \
                 --security-opt seccomp=packaging/container/seccomp.json --security-opt unmask=ALL \
                 -e API_KEY -v woma:/var/lib/woma -p 127.0.0.1:8080:8080 woma"
            }
            Self::Kubernetes => {
                "in the pod's `spec`: {hostUsers: false}; in the container's `securityContext`: \
                 {runAsNonRoot: true, runAsUser: 10001, allowPrivilegeEscalation: false, \
                 capabilities: {drop: [ALL]}, procMount: Unmasked, seccompProfile: {type: \
                 Localhost, localhostProfile: woma.json}, appArmorProfile: {type: Unconfined}}"
            }
            Self::Plain => "woma serve",
        }
    }
}

/// Whether AppArmor restricts user namespaces to programs that have a profile, as Ubuntu does. There
/// `unshare` succeeds, and what follows in the new namespace is refused.
pub(crate) fn apparmor_restricts() -> bool {
    is_set("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")
}

/// The AppArmor profile of this process, unless it has none.
pub(crate) fn apparmor_profile() -> Option<String> {
    if !is_set("/sys/module/apparmor/parameters/enabled", "Y") {
        return None;
    }
    let text = fs::read_to_string("/proc/self/attr/apparmor/current")
        .or_else(|_| fs::read_to_string("/proc/self/attr/current"));
    profile(&text.ok()?)
}

fn profile(current: &str) -> Option<String> {
    let name = current.trim().strip_suffix(" (enforce)")?;
    (name != "unconfined").then(|| name.to_owned())
}

/// The SELinux type of this process, if SELinux enforces its policy.
pub(crate) fn selinux_type() -> Option<String> {
    if !is_set("/sys/fs/selinux/enforce", "1") {
        return None;
    }
    let context = fs::read_to_string("/proc/self/attr/current").ok()?;
    context_type(&context)
}

fn context_type(context: &str) -> Option<String> {
    let kind = context.trim_end_matches(['\0', '\n']).split(':').nth(2)?;
    (kind != "unconfined_t").then(|| kind.to_owned())
}

fn is_set(path: &str, value: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
}

/// Facts about what refuses namespaces here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) engine: Engine,
    /// A limit that forbids all user namespaces, as a command that lifts it.
    pub(crate) switched_off: Option<&'static str>,
    pub(crate) apparmor_restricts: bool,
    pub(crate) apparmor_profile: Option<String>,
    pub(crate) selinux_type: Option<String>,
}

impl Facts {
    pub(crate) fn of_this_machine() -> Self {
        let switched_off = [
            ("user/max_user_namespaces", "sysctl -w user.max_user_namespaces=15000"),
            ("kernel/unprivileged_userns_clone", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ];
        let is_off = |(setting, _): &(&str, _)| is_set(&format!("/proc/sys/{setting}"), "0");
        Self {
            engine: Engine::detect(),
            switched_off: switched_off.into_iter().find(is_off).map(|(_, command)| command),
            apparmor_restricts: apparmor_restricts(),
            apparmor_profile: apparmor_profile(),
            selinux_type: selinux_type(),
        }
    }

    /// The one thing to do about a refused step.
    pub(crate) fn fix(&self) -> String {
        if let Some(command) = self.switched_off {
            return format!(
                "user namespaces are switched off on this machine; as root on it: `{command}`"
            );
        }
        if self.engine == Engine::Plain {
            return self.fix_on_a_machine();
        }
        let command = self.engine.command();
        let mut text = match self.engine {
            Engine::Kubernetes => format!("start it so: {command}"),
            _ => format!("start it so: `{command}`"),
        };
        if self.selinux_type.is_some() && self.engine != Engine::Kubernetes {
            text = text.replace(" run ", " run --security-opt label=disable ");
        }
        if self.apparmor_restricts {
            text.push_str(
                "; and on the host, which restricts user namespaces by AppArmor: `install -m 644 \
                 packaging/apparmor/woma /etc/apparmor.d/woma && apparmor_parser -r \
                 /etc/apparmor.d/woma`, with `apparmor=woma` in place of `apparmor=unconfined`",
            );
        }
        text
    }

    fn fix_on_a_machine(&self) -> String {
        if self.apparmor_restricts {
            return "AppArmor restricts user namespaces to programs that have a profile (Ubuntu 23.10 \
                    and newer); as root, for the program in /usr/bin/woma: `install -m 644 \
                    packaging/apparmor/woma /etc/apparmor.d/woma && apparmor_parser -r \
                    /etc/apparmor.d/woma`"
                .to_owned();
        }
        if let Some(kind) = &self.selinux_type {
            return format!(
                "SELinux confines this process as {kind}; as root, let that type create user \
                 namespaces and mount in them: `ausearch -m avc -ts recent | audit2allow -M woma && \
                 semodule -i woma.pp`"
            );
        }
        if let Some(profile) = &self.apparmor_profile {
            return format!(
                "AppArmor confines this process by the profile {profile}; packaging/apparmor/woma \
                 has the rules that Woma needs"
            );
        }
        "something around this process refuses namespaces and mounts (a service manager's \
         RestrictNamespaces, a sandbox, an outer container): start `woma serve` without it"
            .to_owned()
    }
}

/// The one thing to do for every wall on this machine.
pub fn fix() -> String {
    Facts::of_this_machine().fix()
}

/// How to get further with a sandbox that cannot be built: the fix, and the weaker rung that would
/// do, if there is one.
pub(crate) fn about_namespaces() -> String {
    let fix = Facts::of_this_machine().fix();
    match weaker() {
        Some(rung) => format!(
            "{fix}; or accept the weaker isolation that works here, see docs/THREATS.md: \
             MIN_ISOLATION={}",
            rung.name()
        ),
        None => format!(
            "{fix}; no weaker isolation works here either: without namespaces, Landlock must have \
             version {} (Linux 6.2) or newer",
            rung::TRUNCATION_ABI
        ),
    }
}

/// The highest rung without namespaces that the kernel supports.
pub(crate) fn weaker() -> Option<Rung> {
    let abi = landlock::abi();
    [Rung::Restricted, Rung::Minimal].into_iter().find(|rung| abi >= needed_abi(*rung))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(engine: Engine) -> Facts {
        Facts {
            engine,
            switched_off: None,
            apparmor_restricts: false,
            apparmor_profile: None,
            selinux_type: None,
        }
    }

    #[test]
    fn each_engine_has_one_complete_command() {
        for engine in Engine::ALL {
            let fix = facts(engine).fix();
            assert!(!fix.contains("as root") && !fix.contains(" or "), "{engine:?}: {fix}");
            assert_eq!(fix.matches(engine.command()).count(), 1, "{engine:?}: {fix}");
        }
        assert!(facts(Engine::Docker).fix().contains("docker run --user 10001"));
        assert!(facts(Engine::Podman).fix().contains("unmask=ALL"));
        assert!(facts(Engine::Kubernetes).fix().contains("procMount: Unmasked"));
    }

    #[test]
    fn what_refuses_is_named_by_its_name() {
        let restricted = Facts { apparmor_restricts: true, ..facts(Engine::Plain) };
        assert!(restricted.fix().contains("apparmor_parser -r"), "{}", restricted.fix());
        let inside = Facts { apparmor_restricts: true, ..facts(Engine::Docker) };
        assert!(inside.fix().contains("apparmor=woma"), "{}", inside.fix());
        let selinux = Facts { selinux_type: Some("woma_t".into()), ..facts(Engine::Plain) };
        assert!(selinux.fix().contains("woma_t"), "{}", selinux.fix());
        let container = Facts { selinux_type: Some("container_t".into()), ..facts(Engine::Podman) };
        assert!(container.fix().contains("run --security-opt label=disable --user"));
        let off = Facts { switched_off: Some("sysctl -w x=1"), ..facts(Engine::Docker) };
        assert!(off.fix().ends_with("`sysctl -w x=1`"), "{}", off.fix());
    }

    #[test]
    fn confinement_is_read_as_the_kernel_writes_it() {
        assert_eq!(profile("docker-default (enforce)\n").as_deref(), Some("docker-default"));
        assert_eq!(profile("unconfined\n"), None);
        assert_eq!(profile("woma (complain)\n"), None);
        let context = "system_u:system_r:container_t:s0:c1,c2\0";
        assert_eq!(context_type(context).as_deref(), Some("container_t"));
        assert_eq!(context_type("unconfined_u:unconfined_r:unconfined_t:s0\0"), None);
        assert_eq!(context_type("kernel"), None);
    }
}
