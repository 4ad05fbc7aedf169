//! Sentences of tool descriptions about the modules that code can import.

use woma_core::Profile;
use woma_core::environments::Package;

/// Import names of installed packages that models often use.
pub(crate) fn well_known(packages: &[Package]) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("numpy", "numpy"),
        ("pandas", "pandas"),
        ("matplotlib", "matplotlib"),
        ("seaborn", "seaborn"),
        ("scipy", "scipy"),
        ("scikit-learn", "sklearn"),
        ("statsmodels", "statsmodels"),
        ("plotly", "plotly"),
        ("sympy", "sympy"),
        ("openpyxl", "openpyxl"),
        ("pyarrow", "pyarrow"),
        ("pillow", "PIL"),
        ("duckdb", "duckdb"),
    ];
    let has = |name: &str| packages.iter().any(|package| package.name.eq_ignore_ascii_case(name));
    let found: Vec<&str> =
        NAMES.iter().filter(|(name, _)| has(name)).map(|(_, import)| *import).collect();
    if found.is_empty() { "the standard library".to_owned() } else { found.join(", ") }
}

/// Sentence about allowed imports.
pub(crate) fn imports(profile: &Profile) -> String {
    if profile.is_open() {
        return String::new();
    }
    let allowed: Vec<&str> = profile.modules().into_iter().collect();
    let modules = match allowed.len() {
        0 => "Nothing can be imported.".to_owned(),
        _ => format!("Only these modules can be imported: {}.", allowed.join(", ")),
    };
    format!("{modules} ")
}
