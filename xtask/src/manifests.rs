//! Manifests of a release for winget, Scoop and Homebrew, from the checksums of its archives.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

/// Name and place of a release.
#[derive(Args)]
pub struct ManifestsArgs {
    /// Version, as `0.1.0`
    #[arg(long)]
    version: String,
    /// Owner and name of the repository on GitHub that holds the release, as `owner/manyhands`
    #[arg(long)]
    repository: String,
    /// Checksums of the release's archives, as `sha256sum` writes them
    #[arg(long, value_name = "FILE")]
    sums: PathBuf,
    /// Folder for the manifests
    #[arg(long, value_name = "FOLDER", default_value = "target/manifests")]
    out: PathBuf,
}

const DESCRIPTION: &str = "Train one network on every GPU in the machine, whatever its vendor, without CUDA";
const LICENSE: &str = "MIT OR Apache-2.0";
const WINDOWS: &str = "x86_64-pc-windows-msvc";
const LINUX: &str = "x86_64-unknown-linux-gnu";
const MAC_ARM: &str = "aarch64-apple-darwin";
const MAC_INTEL: &str = "x86_64-apple-darwin";
/// Version of winget's schemas.
const WINGET: &str = "1.10.0";

/// Writes a folder for each package manager.
pub fn run(args: &ManifestsArgs) -> Result<()> {
    let sums = std::fs::read_to_string(&args.sums)
        .with_context(|| format!("needs the checksums `{}`, which can't be read", args.sums.display()))?;
    let release = Release::new(&args.version, &args.repository, &sums)?;
    release.check_package(&std::fs::read_to_string(crate::root().join("Cargo.toml"))?)?;
    for (path, text) in release.files()? {
        let path = args.out.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(&path, text).with_context(|| format!("`{}` can't be written", path.display()))?;
        eprintln!("{}", path.display());
    }
    Ok(())
}

/// A release and the checksums of its archives.
struct Release<'a> {
    version: &'a str,
    owner: &'a str,
    name: &'a str,
    sums: Vec<(&'a str, &'a str)>,
}

impl<'a> Release<'a> {
    fn new(version: &'a str, repository: &'a str, sums: &'a str) -> Result<Self> {
        let Some((owner, name)) =
            repository.split_once('/').filter(|(owner, name)| !owner.is_empty() && !name.contains('/'))
        else {
            bail!("`--repository` needs an owner and a name, got `{repository}`\n  help: as in `owner/manyhands`");
        };
        let version = version.strip_prefix('v').unwrap_or(version);
        // A line: the checksum, two spaces (or a space and a star), the name.
        let pair = |line: &'a str| {
            let (sum, file) = line.split_once(' ')?;
            (sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .then(|| (file.trim_start_matches([' ', '*']), sum))
        };
        let lines = sums.lines().filter(|line| !line.trim().is_empty());
        let sums = lines
            .map(|line| {
                pair(line).with_context(|| format!("`--sums` needs lines of a SHA-256 and a file's name, got `{line}`"))
            })
            .collect::<Result<_>>()?;
        Ok(Self { version, owner, name, sums })
    }

    /// Checks the address in `Cargo.toml`, from which `cargo binstall` takes the archives.
    fn check_package(&self, manifest: &str) -> Result<()> {
        let found = manifest.lines().find_map(|line| line.strip_prefix("repository = \"")?.strip_suffix('"'));
        let home = self.home();
        if found == Some(home.as_str()) {
            return Ok(());
        }
        let found = found.map_or("none".into(), |found| format!("`{found}`"));
        bail!(
            "`[package]` in `Cargo.toml` needs the repository `{home}`, got {found}\n  help: add `repository = \"{home}\"`: \
             crates.io shows it, and `cargo binstall` finds the archives by it"
        );
    }

    /// The folder within an archive, and the archive's name without its ending.
    fn stem(&self, target: &str) -> String {
        format!("manyhands-{}-{target}", self.version)
    }

    fn archive(&self, target: &str) -> String {
        format!("{}.{}", self.stem(target), if target.contains("windows") { "zip" } else { "tar.gz" })
    }

    fn home(&self) -> String {
        format!("https://github.com/{}/{}", self.owner, self.name)
    }

    fn url(&self, target: &str) -> String {
        format!("{}/releases/download/v{}/{}", self.home(), self.version, self.archive(target))
    }

    fn sum(&self, target: &str) -> Result<&str> {
        let archive = self.archive(target);
        let found = self.sums.iter().find(|(file, _)| *file == archive);
        found.map(|(_, sum)| *sum).with_context(|| {
            let names: Vec<&str> = self.sums.iter().map(|(file, _)| *file).collect();
            format!("the checksums need one of `{archive}`, got those of {}", names.join(", "))
        })
    }

    /// Paths and texts of all manifests.
    fn files(&self) -> Result<Vec<(String, String)>> {
        let id = format!("{}.manyhands", self.owner);
        let winget = |part: &str| format!("winget/{id}{part}.yaml");
        Ok(vec![
            (winget(""), self.winget_version(&id)),
            (winget(".installer"), self.winget_installer(&id)?),
            (winget(".locale.en-US"), self.winget_words(&id)),
            ("scoop/manyhands.json".into(), self.scoop()?),
            ("homebrew/manyhands.rb".into(), self.formula()?),
        ])
    }

    fn winget_version(&self, id: &str) -> String {
        let version = self.version;
        format!(
            "# yaml-language-server: $schema=https://aka.ms/winget-manifest.version.{WINGET}.schema.json\n\
             PackageIdentifier: {id}\n\
             PackageVersion: {version}\n\
             DefaultLocale: en-US\n\
             ManifestType: version\n\
             ManifestVersion: {WINGET}\n"
        )
    }

    fn winget_installer(&self, id: &str) -> Result<String> {
        let (version, stem, url) = (self.version, self.stem(WINDOWS), self.url(WINDOWS));
        let sum = self.sum(WINDOWS)?.to_uppercase();
        Ok(format!(
            "# yaml-language-server: $schema=https://aka.ms/winget-manifest.installer.{WINGET}.schema.json\n\
             PackageIdentifier: {id}\n\
             PackageVersion: {version}\n\
             InstallerType: zip\n\
             NestedInstallerType: portable\n\
             NestedInstallerFiles:\n\
             - RelativeFilePath: {stem}\\manyhands.exe\n\
             \x20 PortableCommandAlias: manyhands\n\
             Installers:\n\
             - Architecture: x64\n\
             \x20 InstallerUrl: {url}\n\
             \x20 InstallerSha256: {sum}\n\
             ManifestType: installer\n\
             ManifestVersion: {WINGET}\n"
        ))
    }

    fn winget_words(&self, id: &str) -> String {
        let (version, owner, home) = (self.version, self.owner, self.home());
        format!(
            "# yaml-language-server: $schema=https://aka.ms/winget-manifest.defaultLocale.{WINGET}.schema.json\n\
             PackageIdentifier: {id}\n\
             PackageVersion: {version}\n\
             PackageLocale: en-US\n\
             Publisher: {owner}\n\
             PackageName: manyhands\n\
             PackageUrl: {home}\n\
             License: {LICENSE}\n\
             ShortDescription: {DESCRIPTION}\n\
             Moniker: manyhands\n\
             ManifestType: defaultLocale\n\
             ManifestVersion: {WINGET}\n"
        )
    }

    fn scoop(&self) -> Result<String> {
        let stem = |version: &str| format!("manyhands-{version}-{WINDOWS}");
        let url = |version: &str| format!("{}/releases/download/v{version}/{}.zip", self.home(), stem(version));
        let manifest = json!({
            "version": self.version,
            "description": DESCRIPTION,
            "homepage": self.home(),
            "license": "MIT|Apache-2.0",
            "architecture": {"64bit": {
                "url": self.url(WINDOWS),
                "hash": self.sum(WINDOWS)?,
                "extract_dir": self.stem(WINDOWS),
            }},
            "bin": "manyhands.exe",
            "checkver": "github",
            "autoupdate": {"architecture": {"64bit": {"url": url("$version"), "extract_dir": stem("$version")}}},
        });
        Ok(format!("{}\n", serde_json::to_string_pretty(&manifest)?))
    }

    fn formula(&self) -> Result<String> {
        let source = |target: &str, indent: &str| -> Result<String> {
            Ok(format!("{indent}url \"{}\"\n{indent}sha256 \"{}\"", self.url(target), self.sum(target)?))
        };
        let (arm, intel, linux) = (source(MAC_ARM, "      ")?, source(MAC_INTEL, "      ")?, source(LINUX, "    ")?);
        let (home, version) = (self.home(), self.version);
        Ok(format!(
            "class Manyhands < Formula\n\
             \x20 desc \"{DESCRIPTION}\"\n\
             \x20 homepage \"{home}\"\n\
             \x20 version \"{version}\"\n\
             \x20 license any_of: [\"MIT\", \"Apache-2.0\"]\n\n\
             \x20 on_macos do\n\
             \x20   on_arm do\n{arm}\n\x20   end\n\
             \x20   on_intel do\n{intel}\n\x20   end\n\
             \x20 end\n\n\
             \x20 on_linux do\n{linux}\n\x20 end\n\n\
             \x20 def install\n\
             \x20   bin.install \"manyhands\"\n\
             \x20   pkgshare.install \"examples\"\n\
             \x20 end\n\n\
             \x20 test do\n\
             \x20   assert_match version.to_s, shell_output(\"#{{bin}}/manyhands --version\")\n\
             \x20 end\n\
             end\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(without: &str) -> String {
        let line = |(idx, target): (usize, &str)| {
            let ending = if target.contains("windows") { "zip" } else { "tar.gz" };
            format!("{:064x}  manyhands-1.2.3-{target}.{ending}\n", 0xabc0 + idx)
        };
        let targets = [WINDOWS, LINUX, MAC_ARM, MAC_INTEL].into_iter().filter(|target| *target != without);
        targets.enumerate().map(line).collect()
    }

    #[test]
    fn each_archive_comes_with_its_own_checksum() {
        let sums = sums("");
        let release = Release::new("v1.2.3", "somebody/manyhands", &sums).unwrap();
        let files = release.files().unwrap();
        let text = |name: &str| &files.iter().find(|(path, _)| path == name).unwrap().1;
        let address = "https://github.com/somebody/manyhands/releases/download/v1.2.3/manyhands-1.2.3-";

        let scoop: serde_json::Value = serde_json::from_str(text("scoop/manyhands.json")).unwrap();
        assert_eq!(scoop["version"], "1.2.3");
        assert_eq!(scoop["architecture"]["64bit"]["url"], format!("{address}{WINDOWS}.zip"));
        assert_eq!(scoop["architecture"]["64bit"]["hash"], format!("{:064x}", 0xabc0));

        let installer = text("winget/somebody.manyhands.installer.yaml");
        assert!(
            installer
                .contains(&format!("\n  InstallerUrl: {address}{WINDOWS}.zip\n  InstallerSha256: {:064X}\n", 0xabc0))
        );
        assert!(installer.contains(
            "\n- RelativeFilePath: manyhands-1.2.3-x86_64-pc-windows-msvc\\manyhands.exe\n  PortableCommandAlias"
        ));
        assert!(text("winget/somebody.manyhands.locale.en-US.yaml").contains("\nPackageVersion: 1.2.3\n"));

        let formula = text("homebrew/manyhands.rb");
        for (idx, target) in [(1, LINUX), (2, MAC_ARM), (3, MAC_INTEL)] {
            let url = formula.find(&format!("url \"{address}{target}.tar.gz\"")).unwrap();
            let sum = formula.find(&format!("sha256 \"{:064x}\"", 0xabc0 + idx)).unwrap();
            assert!(url < sum && sum - url < 160, "{formula}");
        }
        let opened = formula
            .lines()
            .filter(|line| line.ends_with(" do") || line.contains("def ") || line.contains("class "))
            .count();
        assert_eq!(formula.lines().filter(|line| line.trim() == "end").count(), opened);
    }

    #[test]
    fn an_archive_without_a_checksum_is_named() {
        let sums = sums(MAC_ARM);
        let release = Release::new("1.2.3", "somebody/manyhands", &sums).unwrap();
        let error = format!("{:#}", release.files().unwrap_err());
        assert!(error.contains("manyhands-1.2.3-aarch64-apple-darwin.tar.gz"), "{error}");
    }

    #[test]
    fn a_package_without_the_address_of_the_release_is_refused() {
        let sums = sums("");
        let release = Release::new("1.2.3", "somebody/manyhands", &sums).unwrap();
        let error = |manifest: &str| format!("{:#}", release.check_package(manifest).unwrap_err());
        assert!(
            error("[package]\nname = \"manyhands\"\n").contains("`https://github.com/somebody/manyhands`, got none\n")
        );
        let other = error("repository = \"https://github.com/other/manyhands\"\n");
        assert!(other.contains("got `https://github.com/other/manyhands`"), "{other}");
        release.check_package("[package]\nrepository = \"https://github.com/somebody/manyhands\"\n").unwrap();
    }

    #[test]
    fn repositories_and_checksums_are_checked() {
        for (repository, sums) in [("manyhands", ""), ("a/b/c", ""), ("a/b", "abc  file")] {
            assert!(Release::new("1.2.3", repository, sums).is_err(), "{repository} {sums}");
        }
    }
}
