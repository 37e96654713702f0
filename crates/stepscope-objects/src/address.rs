//! What a URL names: a cloud, a bucket, and the name of an object or folder in it.

use std::path::Path;

use crate::error::{ObjectError, ObjectErrorKind};

/// Where objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cloud {
    /// Amazon S3, and stores that speak its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// Any web server: single files.
    Web,
}

const SCHEMES: &[(&str, Cloud)] = &[
    ("s3", Cloud::S3),
    ("s3a", Cloud::S3),
    ("gs", Cloud::Gcs),
    ("az", Cloud::Azure),
    ("abfs", Cloud::Azure),
    ("abfss", Cloud::Azure),
    ("https", Cloud::Web),
    ("http", Cloud::Web),
];

/// Returns whether a path is a URL of an object store or a web server.
pub fn is_object_url(path: &Path) -> bool {
    path.to_str().and_then(split_scheme).is_some()
}

/// Returns a URL without its query, which may hold a signature; other text unchanged.
pub fn without_secrets(text: &str) -> String {
    match split_scheme(text) {
        Some((_, Cloud::Web, _)) => {
            let shown = text.split(['?', '#']).next().unwrap_or(text);
            match shown.split_once("://") {
                Some((scheme, rest)) => {
                    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
                    let host = host.rsplit('@').next().unwrap_or(host);
                    let slash = if rest.contains('/') { "/" } else { "" };
                    format!("{scheme}://{host}{slash}{path}")
                }
                None => shown.to_owned(),
            }
        }
        _ => text.to_owned(),
    }
}

/// Returns scheme, cloud and the rest after `://`.
fn split_scheme(text: &str) -> Option<(&'static str, Cloud, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let known = SCHEMES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(scheme))?;
    Some((known.0, known.1, rest))
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) cloud: Cloud,
    scheme: &'static str,
    /// Bucket or container; the host and port of a web server.
    pub(crate) bucket: String,
    /// Azure's storage account, if the URL names one.
    pub(crate) account: Option<String>,
    /// Host after the account, as the URL spells it.
    account_host: String,
    /// Name of the object or folder, without slashes at its ends.
    pub(crate) key: String,
    /// Whether the URL ends with a slash, and so names a folder.
    pub(crate) is_folder: bool,
    /// Query of a web address, with its question mark; may hold a signature.
    pub(crate) query: String,
}

impl Address {
    /// Parses a URL.
    pub(crate) fn parse(path: &Path) -> Result<Self, ObjectError> {
        let text = path.to_string_lossy();
        let shown = without_secrets(&text);
        let bad = |reason: &str, hint: &str| {
            ObjectError::new(ObjectErrorKind::BadUrl, shown.clone(), reason).with_hint(hint)
        };
        let Some((scheme, cloud, rest)) = split_scheme(&text) else {
            return Err(bad(
                "it is no URL of an object store",
                "use s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or https://HOST/FILE",
            ));
        };
        let (rest, query) = match rest.find(['?', '#']).filter(|_| cloud == Cloud::Web) {
            Some(at) if rest.as_bytes()[at] == b'?' => {
                let (rest, query) = rest.split_at(at);
                (rest, query.split('#').next().unwrap_or(query))
            }
            Some(at) => (&rest[..at], ""),
            None => (rest, ""),
        };
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        let (bucket, account_host) = match authority.split_once('@') {
            Some((container, host)) if cloud == Cloud::Azure => (container, host),
            _ => (authority, ""),
        };
        let account = account_host.split('.').next().unwrap_or_default();
        let is_name = |text: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.$".contains(&byte);
            !text.is_empty()
                && text.bytes().all(allowed)
                && !text.starts_with('.')
                && !text.contains("..")
        };
        if cloud == Cloud::Web {
            if bucket.is_empty() {
                return Err(bad("it names no server", "use https://HOST/FILE"));
            }
        } else if !is_name(bucket) || !(account_host.is_empty() || is_name(account_host)) {
            return Err(bad(
                "it names no bucket",
                "a bucket's name has letters, digits, '-', '_' and '.'",
            ));
        }
        let is_folder = key.is_empty() || key.ends_with('/');
        let key = key.trim_end_matches('/');
        let is_odd = |segment: &str| matches!(segment, "" | "." | "..");
        if cloud != Cloud::Web && !key.is_empty() && key.split('/').any(is_odd) {
            return Err(bad(
                "a folder in it has no name, or the name '.' or '..'",
                "give the object's name without '//', './' and '../'",
            ));
        }
        Ok(Self {
            cloud,
            scheme,
            bucket: bucket.to_owned(),
            account: (!account.is_empty()).then(|| account.to_owned()),
            account_host: account_host.to_owned(),
            key: key.to_owned(),
            is_folder,
            query: query.to_owned(),
        })
    }

    /// Returns the URL of an object of the same bucket, without secrets.
    pub(crate) fn url_of(&self, key: &str) -> String {
        let authority = match self.account_host.as_str() {
            "" => self
                .bucket
                .rsplit('@')
                .next()
                .unwrap_or(&self.bucket)
                .to_owned(),
            host => format!("{}@{host}", self.bucket),
        };
        format!("{}://{authority}/{key}", self.scheme)
    }

    /// Returns the URL without secrets.
    pub(crate) fn url(&self) -> String {
        self.url_of(&self.key)
    }

    /// Returns the whole URL of a web file.
    pub(crate) fn web_url(&self) -> String {
        format!(
            "{}://{}/{}{}",
            self.scheme, self.bucket, self.key, self.query
        )
    }

    /// Returns whether a web address is encrypted.
    pub(crate) fn is_https(&self) -> bool {
        self.scheme == "https"
    }

    /// Returns what identifies the bucket on this machine: folder names of the cache, and the key of its client.
    pub(crate) fn bucket_names(&self) -> [String; 2] {
        let kind = match self.cloud {
            Cloud::S3 => "s3",
            Cloud::Gcs => "gs",
            Cloud::Azure => "az",
            Cloud::Web => self.scheme,
        };
        let bucket = match &self.account {
            Some(account) => format!("{}@{account}", self.bucket),
            // Without the password of a web address.
            None => self
                .bucket
                .rsplit('@')
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        [kind.to_owned(), bucket]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Address, ObjectError> {
        Address::parse(Path::new(text))
    }

    #[test]
    fn urls_name_a_bucket_and_an_object() {
        for (url, cloud, bucket, key, is_folder) in [
            (
                "gs://b/logs/x.xplane.pb",
                Cloud::Gcs,
                "b",
                "logs/x.xplane.pb",
                false,
            ),
            ("s3://my-b.1/logs/", Cloud::S3, "my-b.1", "logs", true),
            ("S3A://b", Cloud::S3, "b", "", true),
            ("az://c/a b/ü", Cloud::Azure, "c", "a b/ü", false),
            (
                "https://h:8080/d/t.json?X=1#y",
                Cloud::Web,
                "h:8080",
                "d/t.json",
                false,
            ),
        ] {
            let found = parsed(url).unwrap();
            assert_eq!(
                (found.cloud, &*found.bucket, &*found.key, found.is_folder),
                (cloud, bucket, key, is_folder),
                "{url}"
            );
        }
        let azure = parsed("abfss://c@acc.dfs.core.windows.net/x").unwrap();
        assert_eq!(azure.account.as_deref(), Some("acc"));
        assert_eq!(azure.url_of("y"), "abfss://c@acc.dfs.core.windows.net/y");
    }

    #[test]
    fn signatures_and_passwords_are_not_shown() {
        let url = "https://me:secret@h/t.json?sig=secret";
        assert_eq!(without_secrets(url), "https://h/t.json");
        let address = parsed(url).unwrap();
        assert!(!address.url().contains("secret"), "{}", address.url());
        assert_eq!(address.web_url(), "https://me:secret@h/t.json?sig=secret");
        assert_eq!(without_secrets("gs://b/a?b"), "gs://b/a?b");
        assert_eq!(without_secrets("a/b?c"), "a/b?c");
    }

    #[test]
    fn other_paths_are_no_urls() {
        for path in ["logs", "/a//b", "file:///a", "s3:/b/x", "main=s3:x", ""] {
            assert!(!is_object_url(Path::new(path)), "{path}");
        }
        for url in [
            "s3://",
            "gs://../x",
            "s3://b/../x",
            "s3://b/a//x",
            "az://c@../x",
            "https:///x",
        ] {
            let error = parsed(url).unwrap_err();
            assert_eq!(error.kind, ObjectErrorKind::BadUrl, "{url}");
            assert!(error.hint.is_some());
        }
    }
}
