//! Profiles: which modules each allows, and how profiles are combined.

use woma_policy::{Mode, Profile, ProfileError, Switches, tiers};

/// Modules of each tier, as system C documents them (with additions from its source).
const TIERS: [(&str, &str); 4] = [
    (
        "basic",
        "math random statistics decimal fractions collections itertools functools heapq bisect \
         string textwrap re difflib unicodedata base64 binascii hashlib hmac secrets json csv \
         html.parser xml.etree urllib.parse datetime uuid calendar dataclasses enum typing time \
         operator copy cmath html configparser abc contextlib types xml.etree.ElementTree",
    ),
    ("data_science", "numpy pandas scipy matplotlib seaborn sklearn statsmodels plotly sympy"),
    ("network", "httpx requests urllib.request aiohttp websocket email smtplib ftplib"),
    ("filesystem", "pathlib os.path tempfile shutil glob zipfile tarfile"),
];

/// Modules of system A.
const POWER_INTERPRETER: &str = "pandas numpy json csv math statistics datetime collections itertools functools re io copy \
     hashlib base64 pathlib decimal fractions typing matplotlib seaborn plotly scipy sklearn \
     statsmodels openpyxl xlsxwriter pdfplumber reportlab requests tabulate textwrap string struct \
     random time calendar pprint dataclasses os urllib shutil glob";

fn switches(tier: &str) -> Switches {
    Switches {
        data_science: tier == "data_science",
        network: tier == "network",
        filesystem: tier == "filesystem",
        allowed_imports: None,
        ..Switches::default()
    }
}

fn named(name: &str) -> Profile {
    Profile::named(name, &Switches::default()).expect("a test cannot go on without it")
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn modules_are_allowed_in_their_tier_only() {
    for (tier, modules) in TIERS {
        let on = Profile::named("tiers", &switches(tier)).unwrap();
        for module in modules.split_whitespace() {
            assert!(on.allows_import(module), "{module} with {tier}");
            for (other, _) in TIERS.iter().filter(|(other, _)| *other != tier) {
                let off = Profile::named("tiers", &switches(other)).unwrap();
                assert_eq!(off.allows_import(module), tier == "basic", "{module} with {other}");
            }
        }
        let shown = tiers().iter().find(|shown| shown.name == tier).unwrap();
        let mut expected: Vec<&str> = modules.split_whitespace().collect();
        let mut known: Vec<&str> = shown.modules.iter().map(String::as_str).collect();
        expected.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, expected);
    }
    let order: Vec<&str> = tiers().iter().map(|tier| tier.name.as_str()).collect();
    assert_eq!(order, ["basic", "data_science", "network", "filesystem"]);
}

#[test]
fn modules_without_a_tier_are_not_allowed() {
    let all =
        Switches { data_science: true, network: true, filesystem: true, ..Switches::default() };
    let profile = Profile::named("tiers", &all).unwrap();
    for module in [
        "os",
        "sys",
        "subprocess",
        "socket",
        "ctypes",
        "importlib",
        "builtins",
        "pickle",
        "urllib",
        "xml",
        "mathx",
        "math;",
        "",
        ".",
        "math.",
        ".math",
        " math",
        "io",
        "ma th",
    ] {
        assert!(!profile.allows_import(module), "{module:?}");
    }
    assert!(profile.allows_import("collections.abc"));
    assert!(profile.allows_import("__future__"));
}

#[test]
fn power_interpreter_has_the_modules_of_system_a() {
    let profile = named("power-interpreter");
    for module in POWER_INTERPRETER.split_whitespace() {
        assert!(profile.allows_import(module), "{module}");
    }
    for module in ["subprocess", "socket", "sys", "asyncio", "httpx", "operator"] {
        assert!(!profile.allows_import(module), "{module}");
    }
    let blocked: Vec<&str> = profile.blocked_builtins.iter().map(String::as_str).collect();
    let expected = [
        "__import__",
        "breakpoint",
        "compile",
        "eval",
        "exec",
        "exit",
        "globals",
        "input",
        "locals",
        "quit",
    ];
    assert_eq!(blocked, expected);
    for (name, value) in [
        ("pd", "pandas"),
        ("np", "numpy"),
        ("datetime", "datetime"),
        ("timedelta", "datetime:timedelta"),
        ("Path", "pathlib:Path"),
        ("Optional", "typing:Optional"),
        ("plt", "matplotlib.pyplot"),
        ("sns", "seaborn"),
        ("px", "plotly.express"),
        ("go", "plotly.graph_objects"),
        ("sm", "statsmodels.api"),
        ("asdict", "dataclasses:asdict"),
        ("SANDBOX_DIR", "@cwd"),
    ] {
        assert_eq!(profile.names.get(name).map(String::as_str), Some(value), "{name}");
    }
    // System A did not check attributes.
    assert_eq!(profile.blocked_attributes.len(), 0);
    let strict = named("tiers").blocked_attributes;
    assert!(strict.contains("__subclasses__"));
    for common in ["__class__", "__name__", "__dict__", "__doc__", "__init__", "__len__"] {
        assert!(!strict.contains(common), "{common}");
    }
}

#[test]
fn the_open_profile_has_no_rules() {
    assert!(Profile::open().is_open());
    assert_eq!(Profile::open(), named("open"));
    assert!(Profile::open().allows_import("os"));
    assert!(!named("tiers").is_open());
    assert!(!Profile::open().narrowed(&[]).is_open());
    assert_eq!(Profile::names().collect::<Vec<_>>(), ["open", "power-interpreter", "tiers"]);
}

#[test]
fn the_filesystem_switch_enables_open() {
    assert!(named("tiers").blocked_builtins.contains("open"));
    let profile = Profile::named("tiers", &switches("filesystem")).unwrap();
    assert!(!profile.blocked_builtins.contains("open"));
    assert!(profile.blocked_builtins.contains("eval"));
}

#[test]
fn allowed_imports_replace_the_modules_of_the_profile() {
    for name in ["open", "tiers", "power-interpreter"] {
        let switches = Switches {
            data_science: true,
            allowed_imports: Some(strings(&[" zlib ", "os.path"])),
            ..Switches::default()
        };
        let profile = Profile::named(name, &switches).unwrap();
        assert!(profile.allows_import("zlib"), "{name}");
        assert!(profile.allows_import("os.path"), "{name}");
        for module in ["math", "numpy", "pandas", "os"] {
            assert!(!profile.allows_import(module), "{module} under {name}");
        }
        let nothing = Switches { allowed_imports: Some(Vec::new()), ..Switches::default() };
        assert!(!Profile::named(name, &nothing).unwrap().allows_import("math"), "{name}");
    }
}

#[test]
fn rejects_allowed_imports_that_are_not_module_names() {
    for bad in ["", "os;", "a b", ".x", "x.", "a..b", "1a", "a-b", "os\n"] {
        let switches = Switches { allowed_imports: Some(strings(&[bad])), ..Switches::default() };
        let answer = Profile::named("tiers", &switches);
        let is_trimmed = bad == "os\n";
        assert_eq!(answer.is_ok(), is_trimmed, "{bad:?}");
    }
    let error = Profile::named("tears", &Switches::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no profile `tears`; there are: open, power-interpreter, tiers"
    );
}

#[test]
fn narrowing_never_widens() {
    let tiers = named("tiers");
    let narrowed = tiers.narrowed(&strings(&["math", " os ", "json;", ""]));
    assert!(narrowed.allows_import("math"));
    for module in ["os", "json", "random", "json;", ""] {
        assert!(!narrowed.allows_import(module), "{module:?}");
    }
    assert!(!tiers.narrowed(&[]).allows_import("math"));
    let open = Profile::open().narrowed(&strings(&["xml.etree"]));
    assert!(open.allows_import("xml.etree.ElementTree"));
    assert!(!open.allows_import("xml"));
    assert!(!open.allows_import("xml.etreeX"));

    let power = named("power-interpreter").narrowed(&strings(&["numpy"]));
    let names: Vec<&str> = power.names.keys().map(String::as_str).collect();
    assert_eq!(names, ["SANDBOX_DIR", "np", "numpy"]);
}

#[test]
fn an_intersection_applies_both_profiles() {
    let tiers = named("tiers");
    let power = named("power-interpreter");
    let both = power.within(&tiers);
    assert!(both.allows_import("math"));
    assert!(!both.allows_import("pandas"));
    assert!(!both.allows_import("uuid"));
    assert!(both.blocked_builtins.contains("open"));
    assert!(both.names.contains_key("math") && !both.names.contains_key("pd"));
    assert!(!both.commands);

    assert_eq!(tiers.within(&Profile::open()), Profile { commands: false, ..tiers.clone() });
    let open = Profile::open().within(&tiers);
    assert!(!open.allows_import("os") && !open.commands);

    for (inner, outer, expected) in [
        (Mode::Annotate, Mode::Raise, Mode::Raise),
        (Mode::Reject, Mode::Annotate, Mode::Reject),
        (Mode::Raise, Mode::Reject, Mode::Reject),
    ] {
        let inner = Profile { mode: inner, ..Profile::open() };
        let outer = Profile { mode: outer, ..Profile::open() };
        assert_eq!(inner.within(&outer).mode, expected);
    }
}

#[test]
fn parses_profiles_of_an_operator() {
    let profiles = Profile::parse(
        r#"
        [profiles.class]
        extends = "tiers"
        tiers = ["data_science"]
        imports = ["turtle"]
        builtins = ["print"]
        mode = "reject"
        names = { np = "numpy", t = "turtle:Turtle", os = "os" }

        [profiles.exam]
        extends = "class"
        commands = true
        "#,
    )
    .unwrap();
    let exam = profiles.named("exam", &Switches::default()).unwrap();
    for module in ["math", "numpy", "turtle"] {
        assert!(exam.allows_import(module), "{module}");
    }
    assert!(!exam.allows_import("os") && !exam.allows_import("requests"));
    assert!(exam.blocked_builtins.contains("print") && exam.blocked_builtins.contains("eval"));
    assert_eq!((exam.mode, exam.commands), (Mode::Reject, true));
    assert_eq!(exam.names.len(), 2, "{:?}", exam.names);
    assert!(profiles.named("open", &Switches::default()).unwrap().is_open());
}

#[test]
fn errors_in_a_profile_file_name_the_key() {
    for (toml, part) in [
        ("[profiles.x]\nimprots = []", "improts"),
        ("[profiles.x]\nmode = \"maybe\"", "mode"),
        ("[profiles.x]\nimports = [\"os;\"]", "profiles.x.imports"),
        ("[profiles.x]\ntiers = [\"fancy\"]", "profiles.x.tiers: there is no tier `fancy`"),
        ("[profiles.x]\nextends = \"y\"", "profiles.x.extends"),
        ("[profiles.x]\nextends = \"x\"", "cycle"),
        ("[profiles.x]\nbuiltins = [\"a b\"]", "profiles.x.builtins"),
        ("[profiles.x]\nattributes = [\"\"]", "profiles.x.attributes"),
        ("[profiles.x.names]\npd = \"pan das\"", "profiles.x.names"),
        ("[profiles.open]\ncommands = false", "open"),
        ("[profile.x]\n", "profile"),
        ("[[tiers]]\nname = \"x\"\nmodules = []", "tiers"),
        ("not toml", "the file of profiles cannot be read"),
    ] {
        let error: ProfileError = Profile::parse(toml).unwrap_err();
        assert!(error.to_string().contains(part), "{toml}: {error}");
    }
}
