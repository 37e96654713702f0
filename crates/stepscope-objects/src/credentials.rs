//! Which credentials a request uses, and what to say when there are none.
//!
//! The sources are those of each cloud's own tools. Without any, an object may still be public: requests are then
//! unsigned, and a refusal says how to get credentials. Only on a machine of the cloud is its metadata server asked:
//! elsewhere nobody would answer for seconds.

use std::path::{Path, PathBuf};

use crate::address::Cloud;
use crate::aws_profile::AwsProfile;

/// Environment variable that makes all requests unsigned.
pub(crate) const ANONYMOUS: &str = "STEPSCOPE_ANONYMOUS";
/// Largest credentials file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The source of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CredentialSource {
    /// The user asked for unsigned requests.
    Anonymous,
    /// Environment variables, or a file that they or the cloud's tool name.
    Environment,
    /// A profile of the AWS command line.
    Profile(AwsProfile),
    /// An access token of Google's command line.
    Token(String),
    /// Azure's command line.
    AzureCommandLine,
    /// The machine's own role.
    Machine,
    /// None: requests are unsigned, and a refusal means missing credentials.
    Missing,
}

/// Why the credentials cannot be used: cause and advice.
pub(crate) type Unusable = (String, &'static str);

/// What the choice of credentials and endpoints depends on.
#[derive(Clone, Debug)]
pub struct Environment {
    variables: Vec<(String, String)>,
    /// Folder in which Linux describes the machine.
    machine: PathBuf,
}

impl Environment {
    /// Returns that of this process. Variables that are no text are left out.
    pub fn of_process() -> Self {
        let text = std::env::vars_os();
        let text = text.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self {
            variables: text.collect(),
            machine: PathBuf::from("/sys/class/dmi/id"),
        }
    }

    /// Creates one with these variables only, on a machine of no cloud that is described in a folder.
    pub fn new(variables: &[(&str, &str)], machine: &Path) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            variables: variables.iter().map(owned).collect(),
            machine: machine.to_owned(),
        }
    }

    /// Returns the variables whose names begin with a prefix, the names in lower case.
    pub(crate) fn settings(&self, prefix: &str) -> impl Iterator<Item = (String, &str)> {
        let settings = self.variables.iter();
        let settings =
            settings.filter(move |(name, value)| name.starts_with(prefix) && !value.is_empty());
        settings.map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let mut variables = self.variables.iter();
        let (_, value) = variables.find(|(known, _)| known == name)?;
        (!value.is_empty()).then(|| value.clone())
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| {
            matches!(
                value.to_ascii_lowercase().as_str(),
                "1" | "true" | "yes" | "on"
            )
        })
    }

    fn home(&self, below: &str) -> Option<PathBuf> {
        Some(PathBuf::from(self.get("HOME")?).join(below))
    }

    fn machine(&self, file: &str) -> String {
        std::fs::read_to_string(self.machine.join(file)).unwrap_or_default()
    }

    /// Returns the path of a program on `PATH`.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.get("PATH")?;
        let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        let mut files = folders.map(|folder| folder.join(name));
        files.find(|file| file.is_file())
    }
}

/// Chooses the source of credentials for a cloud.
pub(crate) fn choose(cloud: Cloud, at: &Environment) -> Result<CredentialSource, Unusable> {
    if at.is_on(ANONYMOUS) {
        return Ok(CredentialSource::Anonymous);
    }
    match cloud {
        Cloud::S3 => Ok(choose_s3(at)),
        Cloud::Gcs => choose_gcs(at),
        Cloud::Azure => Ok(choose_azure(at)),
        Cloud::Web => Ok(CredentialSource::Anonymous),
    }
}

fn choose_s3(at: &Environment) -> CredentialSource {
    if at.is_on("AWS_SKIP_SIGNATURE") {
        return CredentialSource::Anonymous;
    }
    let in_environment = at.has("AWS_ACCESS_KEY_ID") && at.has("AWS_SECRET_ACCESS_KEY")
        || at.has("AWS_WEB_IDENTITY_TOKEN_FILE") && at.has("AWS_ROLE_ARN")
        || at.has("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        || at.has("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if in_environment {
        return CredentialSource::Environment;
    }
    let profile = AwsProfile::read(&|name| at.get(name));
    if let Some(profile) = profile.filter(|profile| profile.signs_in || profile.keys().is_some()) {
        return CredentialSource::Profile(profile);
    }
    let is_machine = ["sys_vendor", "board_vendor", "bios_vendor"]
        .iter()
        .any(|file| at.machine(file).contains("Amazon"));
    if is_machine && !at.is_on("AWS_EC2_METADATA_DISABLED") {
        return CredentialSource::Machine;
    }
    CredentialSource::Missing
}

fn choose_gcs(at: &Environment) -> Result<CredentialSource, Unusable> {
    if at.is_on("GOOGLE_SKIP_SIGNATURE") {
        return Ok(CredentialSource::Anonymous);
    }
    for name in ["GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"] {
        if let Some(token) = at.get(name) {
            return Ok(CredentialSource::Token(token));
        }
    }
    let service_accounts = [
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_BEARER_TOKEN",
    ];
    if service_accounts.iter().any(|name| at.has(name)) {
        return Ok(CredentialSource::Environment);
    }
    let named = at.get("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
    let own = at.home(".config/gcloud/application_default_credentials.json");
    let file = named.or_else(|| own.filter(|file| file.exists()));
    if let Some(file) = file {
        check_google_file(&file)?;
        return Ok(CredentialSource::Environment);
    }
    if at.machine("product_name").contains("Google") || at.machine("bios_vendor").contains("Google")
    {
        return Ok(CredentialSource::Machine);
    }
    Ok(CredentialSource::Missing)
}

/// Checks that a credentials file is of a type that can be used.
fn check_google_file(file: &Path) -> Result<(), Unusable> {
    const SIGN_IN: &str = "sign in with 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS \
                           to the key file of a service account";
    let shown = file.display();
    let is_small = std::fs::metadata(file).is_ok_and(|found| found.len() <= MAX_FILE_BYTES);
    let text = is_small
        .then(|| std::fs::read_to_string(file).ok())
        .flatten();
    let Some(text) = text else {
        return Err((
            format!("the credentials file {shown} cannot be read"),
            SIGN_IN,
        ));
    };
    let content: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let kind = content
        .as_ref()
        .and_then(|content| content["type"].as_str());
    match kind {
        Some("service_account" | "authorized_user") => Ok(()),
        Some(kind) => {
            let kind: String = kind.chars().take(40).collect();
            Err((
                format!(
                    "the credentials file {shown} is of the type '{kind}', which is not supported"
                ),
                "set GOOGLE_OAUTH_ACCESS_TOKEN to the output of 'gcloud auth print-access-token'",
            ))
        }
        None => Err((format!("the credentials file {shown} is damaged"), SIGN_IN)),
    }
}

fn choose_azure(at: &Environment) -> CredentialSource {
    if at.is_on("AZURE_SKIP_SIGNATURE") {
        return CredentialSource::Anonymous;
    }
    let keys = [
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_MASTER_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_MSI_ENDPOINT",
        "AZURE_IDENTITY_ENDPOINT",
        "IDENTITY_ENDPOINT",
    ];
    if keys.iter().any(|name| at.has(name))
        || at.is_on("AZURE_STORAGE_USE_EMULATOR")
        || at.is_on("AZURE_USE_AZURE_CLI")
    {
        return CredentialSource::Environment;
    }
    let signed_in = at
        .home(".azure/azureProfile.json")
        .is_some_and(|file| file.exists());
    if signed_in && at.program("az").is_some() {
        return CredentialSource::AzureCommandLine;
    }
    // The tag that all machines of Azure have.
    if at
        .machine("chassis_asset_tag")
        .contains("7783-7084-3265-9085-8269-3286-77")
    {
        return CredentialSource::Machine;
    }
    CredentialSource::Missing
}

/// Returns how to get credentials.
pub(crate) fn how_to_sign_in(cloud: Cloud) -> &'static str {
    match cloud {
        Cloud::S3 => {
            "sign in with 'aws sso login' or 'aws configure', or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; \
             docs/guide/object-storage.md lists all sources"
        }
        Cloud::Gcs => {
            "sign in with 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS; \
             docs/guide/object-storage.md lists all sources"
        }
        Cloud::Azure => {
            "sign in with 'az login', or set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN; \
             docs/guide/object-storage.md lists all sources"
        }
        Cloud::Web => "use an address that needs no sign-in, such as a signed one",
    }
}

/// Returns what an account needs to write.
pub(crate) fn how_to_be_allowed_to_write(cloud: Cloud) -> &'static str {
    match cloud {
        Cloud::S3 => {
            "check the account with 'aws sts get-caller-identity': it needs s3:PutObject and s3:AbortMultipartUpload"
        }
        Cloud::Gcs => {
            "check the account with 'gcloud auth list': it needs the role Storage Object User"
        }
        Cloud::Azure => {
            "check the account with 'az account show': it needs the role Storage Blob Data Contributor"
        }
        Cloud::Web => "use s3://, gs:// or az://",
    }
}

/// Returns what to do about credentials that are refused.
pub(crate) fn how_to_be_allowed(cloud: Cloud) -> &'static str {
    match cloud {
        Cloud::S3 => {
            "check the account with 'aws sts get-caller-identity': it needs s3:ListBucket and s3:GetObject; \
             STEPSCOPE_ANONYMOUS=1 reads public buckets without it"
        }
        Cloud::Gcs => {
            "check the account with 'gcloud auth list': it needs the role Storage Object Viewer; \
             STEPSCOPE_ANONYMOUS=1 reads public buckets without it"
        }
        Cloud::Azure => {
            "check the account with 'az account show': it needs the role Storage Blob Data Reader; \
             STEPSCOPE_ANONYMOUS=1 reads public containers without it"
        }
        Cloud::Web => "use an address that needs no sign-in, such as a signed one",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        cloud: Cloud,
        variables: &[(&str, &str)],
        dmi: &Path,
    ) -> Result<CredentialSource, Unusable> {
        choose(cloud, &Environment::new(variables, dmi))
    }

    #[test]
    fn no_credentials_are_missing_and_no_machine_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        for cloud in [Cloud::S3, Cloud::Gcs, Cloud::Azure] {
            assert_eq!(
                chosen(cloud, &[], dir.path()),
                Ok(CredentialSource::Missing)
            );
            let anonymous = [
                (ANONYMOUS, "1"),
                ("AWS_ACCESS_KEY_ID", "a"),
                ("AWS_SECRET_ACCESS_KEY", "b"),
            ];
            assert_eq!(
                chosen(cloud, &anonymous, dir.path()),
                Ok(CredentialSource::Anonymous)
            );
            let off = [(ANONYMOUS, "0")];
            assert_eq!(
                chosen(cloud, &off, dir.path()),
                Ok(CredentialSource::Missing)
            );
        }
    }

    #[test]
    fn variables_come_before_files_and_files_before_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("sys_vendor"), "Amazon EC2\n").unwrap();
        std::fs::write(dir.path().join("product_name"), "Google Compute Engine\n").unwrap();
        std::fs::write(
            dir.path().join("chassis_asset_tag"),
            "7783-7084-3265-9085-8269-3286-77\n",
        )
        .unwrap();
        for cloud in [Cloud::S3, Cloud::Gcs, Cloud::Azure] {
            assert_eq!(
                chosen(cloud, &[], dir.path()),
                Ok(CredentialSource::Machine),
                "{cloud:?}"
            );
        }
        let home = dir.path().display().to_string();
        std::fs::create_dir(dir.path().join(".aws")).unwrap();
        let keys = "[default]\naws_access_key_id = A\naws_secret_access_key = S\n";
        std::fs::write(dir.path().join(".aws/credentials"), keys).unwrap();
        let from_file = chosen(Cloud::S3, &[("HOME", &home)], dir.path()).unwrap();
        assert!(matches!(from_file, CredentialSource::Profile(_)));
        let both = [
            ("HOME", &*home),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
        ];
        assert_eq!(
            chosen(Cloud::S3, &both, dir.path()),
            Ok(CredentialSource::Environment)
        );
        let azure = [("AZURE_STORAGE_SAS_TOKEN", "sig=1")];
        assert_eq!(
            chosen(Cloud::Azure, &azure, dir.path()),
            Ok(CredentialSource::Environment)
        );
    }

    #[test]
    fn google_files_of_other_types_are_refused_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key.json");
        let named = file.display().to_string();
        let at = [("GOOGLE_APPLICATION_CREDENTIALS", &*named)];
        let with = |content: &str| {
            std::fs::write(&file, content).unwrap();
            chosen(Cloud::Gcs, &at, dir.path())
        };
        let (cause, help) = with(r#"{"type": "external_account"}"#).unwrap_err();
        assert!(cause.contains("'external_account'"), "{cause}");
        assert!(help.contains("print-access-token"), "{help}");
        for damaged in ["", "{", "[1]", r#"{"type": 7}"#] {
            let (cause, _) = with(damaged).unwrap_err();
            assert!(cause.ends_with("is damaged"), "{damaged}: {cause}");
        }
        assert_eq!(
            with(r#"{"type": "authorized_user"}"#),
            Ok(CredentialSource::Environment)
        );
        std::fs::remove_file(&file).unwrap();
        assert!(
            chosen(Cloud::Gcs, &at, dir.path())
                .unwrap_err()
                .0
                .contains("cannot be read")
        );
        let token = [("GOOGLE_OAUTH_ACCESS_TOKEN", "t")];
        assert_eq!(
            chosen(Cloud::Gcs, &token, dir.path()),
            Ok(CredentialSource::Token("t".into()))
        );
    }
}
