//! Requests to one bucket, or to one web server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::aws::{
    AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider, resolve_bucket_region,
};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, RetryConfig, StaticCredentialProvider, WriteMultipart,
};

use crate::address::{Address, Cloud};
use crate::aws_profile::{AwsProfile, SignedInProfile};
use crate::connector::{BoundedConnector, CONNECT_TIMEOUT, READ_TIMEOUT};
use crate::credentials::{self, CredentialSource, Environment};
use crate::error::{ObjectError, ObjectErrorKind};
pub(crate) use crate::state::ObjectState;
use crate::stop::Stop;
use crate::web::WebServer;

/// Time that a page of a listing or the state of an object may take, with all repetitions.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// The same without credentials: users learn within three seconds that they are missing.
const UNSIGNED_TIMEOUT: Duration = Duration::from_millis(2_500);
/// Time that a range of an object may take, with all repetitions.
const RANGE_TIMEOUT: Duration = Duration::from_mins(3);
/// Files up to this length are sent in one request, longer ones in parts of it, bytes.
const PART_BYTES: usize = 8 << 20;
/// Parts of a file that are sent at once.
const PARTS_AT_ONCE: usize = 4;
/// Time that a request which is sent has to be answered after a stop.
const STOPPED_PUT: Duration = Duration::from_secs(5);
/// Keys of a page, where the store lets one choose.
const PAGE_KEYS: usize = 1_000;

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) objects: Vec<ObjectState>,
    /// For the next page.
    pub(crate) token: Option<String>,
}

/// Client of a bucket or web server.
pub(crate) struct Store {
    pub(crate) address: Address,
    client: Client,
    source: CredentialSource,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("address", &self.address.url())
            .finish_non_exhaustive()
    }
}

enum Client {
    Cloud {
        objects: Arc<dyn ObjectStore>,
        pages: Arc<dyn PaginatedListStore>,
        connector: BoundedConnector,
    },
    Web(WebServer),
}

impl Store {
    /// Chooses credentials and makes the client. Sends requests only to learn the region of a bucket.
    pub(crate) async fn connect(
        address: &Address,
        environment: &Environment,
    ) -> Result<Self, ObjectError> {
        let url = address.url();
        let source = credentials::choose(address.cloud, environment).map_err(|(cause, help)| {
            ObjectError::new(ObjectErrorKind::Denied, &url, cause).with_hint(help)
        })?;
        let client = match address.cloud {
            Cloud::S3 => connect_s3(address, &source, environment).await?,
            Cloud::Gcs => connect_gcs(address, &source, environment)?,
            Cloud::Azure => connect_azure(address, &source, environment)?,
            Cloud::Web => Client::Web(WebServer::new(address)?),
        };
        Ok(Self {
            address: address.clone(),
            client,
            source,
        })
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        match &self.client {
            Client::Cloud { connector, .. } => connector.requests(),
            Client::Web(web) => web.requests(),
        }
    }

    /// Lists one page of the objects below a prefix, in the order of their names.
    pub(crate) async fn page(
        &self,
        prefix: &str,
        offset: Option<String>,
        token: Option<String>,
    ) -> Result<Page, ObjectError> {
        let url = self.address.url_of(prefix);
        let Client::Cloud { pages, .. } = &self.client else {
            return Err(ObjectError::new(
                ObjectErrorKind::BadUrl,
                url,
                "a web server lists no folders",
            )
            .with_hint("name a file, or use s3://, gs:// or az://"));
        };
        let options = PaginatedListOptions {
            // The token knows where to go on.
            offset: offset.filter(|_| token.is_none()),
            page_token: token,
            // Azure sends 5,000 by default.
            max_keys: (self.address.cloud != Cloud::Azure).then_some(PAGE_KEYS),
            ..PaginatedListOptions::default()
        };
        let asked = pages.list_paginated((!prefix.is_empty()).then_some(prefix), options);
        let page = self.answered(&url, asked).await?;
        let objects = page.result.objects.into_iter().map(state_of).collect();
        Ok(Page {
            objects,
            token: page.page_token.filter(|token| !token.is_empty()),
        })
    }

    /// Returns the state of one object.
    pub(crate) async fn head(&self, key: &str) -> Result<ObjectState, ObjectError> {
        let url = self.address.url_of(key);
        match &self.client {
            Client::Cloud { objects, .. } => {
                let key = parsed_key(&url, key)?;
                let found = self.answered(&url, objects.head(&key)).await?;
                Ok(state_of(found))
            }
            Client::Web(web) => web.head().await,
        }
    }

    /// Returns a range of an object; fails if the object is no longer in this state.
    pub(crate) async fn range(
        &self,
        object: &ObjectState,
        from: u64,
        to: u64,
    ) -> Result<Vec<u8>, ObjectError> {
        let url = self.address.url_of(&object.key);
        let fetched = async {
            match &self.client {
                Client::Cloud { objects, .. } => {
                    let key = parsed_key(&url, &object.key)?;
                    let options = GetOptions {
                        if_match: object.etag.clone(),
                        range: Some(GetRange::Bounded(from..to)),
                        ..GetOptions::default()
                    };
                    let found = objects.get_opts(&key, options).await;
                    let found = found.map_err(|error| self.failed(&url, &error))?;
                    if found.range != (from..to) || found.meta.size != object.bytes {
                        return Err(ObjectError::changed(&url));
                    }
                    let wanted = to - from;
                    let mut bytes = Vec::new();
                    let mut stream = found.into_stream();
                    while let Some(chunk) = stream.next().await {
                        let chunk = chunk.map_err(|error| self.failed(&url, &error))?;
                        if (bytes.len() + chunk.len()) as u64 > wanted {
                            return Err(ObjectError::longer(&url));
                        }
                        bytes.extend_from_slice(&chunk);
                    }
                    Ok(bytes)
                }
                Client::Web(web) => web.range(object, from, to).await,
            }
        };
        let bytes = tokio::time::timeout(RANGE_TIMEOUT, fetched)
            .await
            .map_err(|_elapsed| ObjectError::timed_out(&url))??;
        if bytes.len() as u64 != to - from {
            return Err(ObjectError::shorter(&url));
        }
        Ok(bytes)
    }

    /// Passes the whole of a file of a web server that sends no ranges to `take`, in pieces.
    pub(crate) async fn whole(
        &self,
        object: &ObjectState,
        take: &mut (dyn FnMut(&[u8]) -> Result<(), ObjectError> + Send),
    ) -> Result<(), ObjectError> {
        match &self.client {
            Client::Web(web) => web.whole(object, take).await,
            // Clouds send ranges.
            Client::Cloud { .. } => take(&self.range(object, 0, object.bytes).await?),
        }
    }

    /// Creates or replaces an object. `next` returns at most so many bytes of its content, none at the end.
    ///
    /// When it fails or is stopped, no part of the object stays in the store.
    pub(crate) async fn put(
        &self,
        key: &str,
        next: &mut (dyn FnMut(usize) -> Result<Vec<u8>, ObjectError> + Send),
        sent: &AtomicU64,
        stop: &Stop,
    ) -> Result<(), ObjectError> {
        let url = self.address.url_of(key);
        let Client::Cloud { objects, .. } = &self.client else {
            let reason = "files cannot be written to a web server";
            return Err(ObjectError::new(ObjectErrorKind::BadUrl, url, reason)
                .with_hint("use s3://, gs:// or az://"));
        };
        let key = parsed_key(&url, key)?;
        let failed = |error: object_store::Error| self.refused(&url, &error);
        let count = |part: &[u8]| sent.fetch_add(part.len() as u64, Ordering::Relaxed);
        let cancelled = || Err(ObjectError::cancelled(&url));
        let first = next(PART_BYTES)?;
        count(&first);
        if first.len() < PART_BYTES {
            let put = objects.put(&key, first.into());
            // A request that is sent is answered: else nobody knows whether there is an object now.
            return tokio::select! {
                put = put => put.map(drop).map_err(failed),
                () = stop.wait(STOPPED_PUT) => cancelled(),
            };
        }
        let begun = tokio::select! {
            begun = objects.put_multipart(&key) => begun.map_err(failed)?,
            () = stop.wait(STOPPED_PUT) => return cancelled(),
        };
        let mut parts = WriteMultipart::new_with_chunk_size(begun, PART_BYTES);
        parts.write(&first);
        let rest = async {
            loop {
                parts
                    .wait_for_capacity(PARTS_AT_ONCE)
                    .await
                    .map_err(failed)?;
                let part = next(PART_BYTES)?;
                if part.is_empty() {
                    return parts.wait_for_capacity(1).await.map_err(failed);
                }
                count(&part);
                parts.write(&part);
            }
        };
        let sent = tokio::select! {
            sent = rest => sent,
            () = stop.wait(Duration::ZERO) => cancelled(),
        };
        match sent {
            // It gives the parts up itself when it fails.
            Ok(()) => parts.finish().await.map(drop).map_err(failed),
            Err(error) => {
                // What was sent costs money until it is given up; the first error is the one to report.
                let _ = parts.abort().await;
                Err(error)
            }
        }
    }

    /// Removes an object.
    pub(crate) async fn remove(&self, key: &str) -> Result<(), ObjectError> {
        let url = self.address.url_of(key);
        match &self.client {
            Client::Cloud { objects, .. } => {
                let key = parsed_key(&url, key)?;
                let removed = objects.delete(&key).await;
                removed.map_err(|error| self.refused(&url, &error))
            }
            Client::Web(_) => Ok(()),
        }
    }

    /// Returns the error of a request that writes.
    fn refused(&self, url: &str, error: &object_store::Error) -> ObjectError {
        let error = self.failed(url, error);
        match error.kind {
            ObjectErrorKind::Denied => {
                error.with_hint(credentials::how_to_be_allowed_to_write(self.address.cloud))
            }
            ObjectErrorKind::Unreachable => ObjectError {
                hint: Some("try again".to_owned()),
                ..error
            },
            _ => error,
        }
    }

    async fn answered<T>(
        &self,
        url: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, ObjectError> {
        let is_missing = self.source == CredentialSource::Missing;
        let limit = if is_missing {
            UNSIGNED_TIMEOUT
        } else {
            ANSWER_TIMEOUT
        };
        match tokio::time::timeout(limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failed(url, &error)),
            Err(_elapsed) if is_missing => {
                Err(self.missing(url, "the server did not answer in time"))
            }
            Err(_elapsed) => Err(ObjectError::timed_out(url)),
        }
    }

    fn failed(&self, url: &str, error: &object_store::Error) -> ObjectError {
        let error = ObjectError::from_store(url, error);
        match error.kind {
            ObjectErrorKind::Denied if self.source == CredentialSource::Missing => {
                self.missing(url, "it is not public")
            }
            ObjectErrorKind::Denied => {
                error.with_hint(credentials::how_to_be_allowed(self.address.cloud))
            }
            ObjectErrorKind::Unreachable if self.source == CredentialSource::Missing => {
                self.missing(url, &error.reason)
            }
            // Azure hides containers that are not public.
            ObjectErrorKind::NotFound | ObjectErrorKind::Other
                if self.source == CredentialSource::Missing
                    && self.address.cloud == Cloud::Azure =>
            {
                self.missing(url, "it is not public, or does not exist")
            }
            _ => error,
        }
    }

    fn missing(&self, url: &str, reason: &str) -> ObjectError {
        ObjectError::new(
            ObjectErrorKind::NoCredentials,
            url,
            format!("there are no credentials, and without them {reason}"),
        )
        .with_hint(credentials::how_to_sign_in(self.address.cloud))
    }
}

fn parsed_key(url: &str, key: &str) -> Result<Key, ObjectError> {
    Key::parse(key)
        .map_err(|error| ObjectError::new(ObjectErrorKind::BadUrl, url, error.to_string()))
}

fn state_of(found: ObjectMeta) -> ObjectState {
    let modified_ns = found.last_modified.timestamp_nanos_opt().unwrap_or(0);
    let is_strong = |etag: &String| !etag.starts_with("W/") && !etag.trim_matches('"').is_empty();
    // Azure lists them without quotes.
    let quoted = |etag: String| {
        if etag.starts_with('"') {
            etag
        } else {
            format!("\"{etag}\"")
        }
    };
    let etag = found.e_tag.clone().filter(is_strong).map(quoted);
    let time = (modified_ns != 0).then(|| format!("time {modified_ns}"));
    let weak = found.e_tag.filter(|etag| !etag.is_empty());
    ObjectState {
        key: found.location.to_string(),
        bytes: found.size,
        modified_ns,
        state: etag.clone().or(weak).or(found.version).or(time),
        etag,
        has_ranges: true,
    }
}

fn client_options(allow_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(READ_TIMEOUT)
        .with_timeout_disabled()
        .with_allow_http(allow_http)
}

fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: 3,
        retry_timeout: Duration::from_secs(20),
    }
}

/// Returns whether an endpoint that the user named is reached without encryption.
fn is_plain(environment: &Environment, variables: &[&str]) -> bool {
    let mut named = variables.iter().filter_map(|name| environment.get(name));
    named.any(|value| value.starts_with("http://"))
}

async fn connect_s3(
    address: &Address,
    source: &CredentialSource,
    environment: &Environment,
) -> Result<Client, ObjectError> {
    let url = address.url();
    let connector = BoundedConnector::default();
    let allow_http = is_plain(
        environment,
        &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
    ) || matches!(source, CredentialSource::Profile(profile)
        if profile.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")));
    let options = client_options(allow_http);
    // Not every server that speaks S3's protocol removes several objects with one request.
    let mut builder = AmazonS3Builder::new().with_disable_bulk_delete(true);
    for (name, value) in environment.settings("AWS_") {
        if let Ok(key) = name.parse() {
            builder = builder.with_config(key, value);
        }
    }
    builder = builder
        .with_bucket_name(&address.bucket)
        .with_client_options(options.clone())
        .with_retry(retry())
        .with_http_connector(connector.clone());
    match source {
        CredentialSource::Anonymous | CredentialSource::Missing => {
            builder = builder.with_skip_signature(true);
        }
        CredentialSource::Profile(profile) => {
            let named = |key| builder.get_config_value(&key).is_some();
            let (has_region, has_endpoint) = (
                named(AmazonS3ConfigKey::Region),
                named(AmazonS3ConfigKey::Endpoint) || named(AmazonS3ConfigKey::S3Endpoint),
            );
            if let Some(region) = profile.region.as_ref().filter(|_| !has_region) {
                builder = builder.with_region(region);
            }
            if let Some(endpoint) = profile.endpoint.as_ref().filter(|_| !has_endpoint) {
                builder = builder.with_endpoint(endpoint);
            }
            builder = builder.with_credentials(sign_in(profile, &url, environment).await?);
        }
        _ => {}
    }
    let is_named = |key| builder.get_config_value(&key).is_some();
    let is_elsewhere =
        is_named(AmazonS3ConfigKey::Endpoint) || is_named(AmazonS3ConfigKey::S3Endpoint);
    if !is_named(AmazonS3ConfigKey::Region) && !is_elsewhere {
        let asked = resolve_bucket_region(&address.bucket, &options);
        match tokio::time::timeout(UNSIGNED_TIMEOUT, asked).await {
            Ok(Ok(region)) => builder = builder.with_region(region),
            Ok(Err(error)) if error.to_string().contains("not found") => {
                return Err(
                    ObjectError::new(ObjectErrorKind::NotFound, &url, "no such bucket")
                        .with_hint("check the bucket's name"),
                );
            }
            Ok(Err(_)) | Err(_) if *source == CredentialSource::Missing => {
                let reason = "there are no credentials, and s3.amazonaws.com does not answer";
                return Err(
                    ObjectError::new(ObjectErrorKind::NoCredentials, &url, reason)
                        .with_hint(credentials::how_to_sign_in(Cloud::S3)),
                );
            }
            Ok(Err(_)) | Err(_) => {
                return Err(ObjectError::new(
                    ObjectErrorKind::Unreachable,
                    &url,
                    "the region of the bucket cannot be found: s3.amazonaws.com does not answer",
                )
                .with_hint(
                    "check the network and the proxy (HTTPS_PROXY), or set AWS_REGION or AWS_ENDPOINT_URL",
                ));
            }
        }
    }
    let store = builder
        .build()
        .map_err(|error| ObjectError::from_store(&url, &error))?;
    let store = Arc::new(store);
    Ok(Client::Cloud {
        objects: Arc::<object_store::aws::AmazonS3>::clone(&store),
        pages: store,
        connector,
    })
}

/// Returns the keys of a profile, or signs in with the AWS command line.
async fn sign_in(
    profile: &AwsProfile,
    url: &str,
    environment: &Environment,
) -> Result<AwsCredentialProvider, ObjectError> {
    if let Some(keys) = profile.keys() {
        return Ok(Arc::new(StaticCredentialProvider::new(keys)));
    }
    let name = &profile.name;
    let refused = |reason: String| {
        ObjectError::new(
            ObjectErrorKind::Denied,
            url,
            format!("the profile '{name}' gives no credentials: {reason}"),
        )
        .with_hint(format!(
            "sign in with 'aws sso login --profile {name}', or choose another one in AWS_PROFILE"
        ))
    };
    let program = environment.program("aws");
    let program =
        program.ok_or_else(|| refused("the AWS command line is not installed".to_owned()))?;
    let owned = name.clone();
    let asked = tokio::task::spawn_blocking(move || SignedInProfile::sign_in(&owned, &program));
    let signed_in = asked.await.map_err(|error| refused(error.to_string()))?;
    Ok(Arc::new(signed_in.map_err(refused)?))
}

fn connect_gcs(
    address: &Address,
    source: &CredentialSource,
    environment: &Environment,
) -> Result<Client, ObjectError> {
    let connector = BoundedConnector::default();
    let mut builder = GoogleCloudStorageBuilder::new();
    for (name, value) in environment.settings("GOOGLE_") {
        if let Ok(key) = name.parse() {
            builder = builder.with_config(key, value);
        }
    }
    builder = builder
        .with_bucket_name(&address.bucket)
        .with_client_options(client_options(is_plain(environment, &["GOOGLE_BASE_URL"])))
        .with_retry(retry())
        .with_http_connector(connector.clone());
    match source {
        CredentialSource::Anonymous | CredentialSource::Missing => {
            // Without credentials of its own the builder would read files that cannot be used.
            let none = object_store::gcp::GcpCredential {
                bearer: String::new(),
            };
            builder = builder
                .with_credentials(Arc::new(StaticCredentialProvider::new(none)))
                .with_skip_signature(true);
        }
        CredentialSource::Token(token) => {
            let token = object_store::gcp::GcpCredential {
                bearer: token.clone(),
            };
            builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(token)));
        }
        _ => {}
    }
    let store = builder.build();
    let store = store.map_err(|error| ObjectError::from_store(&address.url(), &error))?;
    let store = Arc::new(store);
    Ok(Client::Cloud {
        objects: Arc::<object_store::gcp::GoogleCloudStorage>::clone(&store),
        pages: store,
        connector,
    })
}

fn connect_azure(
    address: &Address,
    source: &CredentialSource,
    environment: &Environment,
) -> Result<Client, ObjectError> {
    let connector = BoundedConnector::default();
    let url = address.url();
    let mut builder = MicrosoftAzureBuilder::new();
    for (name, value) in environment.settings("AZURE_") {
        if let Ok(key) = name.parse() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = environment.get("IDENTITY_ENDPOINT") {
        builder = builder.with_msi_endpoint(endpoint);
    }
    let allow_http = is_plain(environment, &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]);
    builder = builder
        .with_container_name(&address.bucket)
        .with_client_options(client_options(allow_http))
        .with_retry(retry())
        .with_http_connector(connector.clone());
    if let Some(account) = &address.account {
        builder = builder.with_account(account);
    }
    let account = object_store::azure::AzureConfigKey::AccountName;
    let is_emulator = environment.is_on("AZURE_STORAGE_USE_EMULATOR");
    if builder.get_config_value(&account).is_none() && !is_emulator {
        return Err(ObjectError::new(
            ObjectErrorKind::NoCredentials,
            url,
            "the storage account is not known",
        )
        .with_hint(
            "set AZURE_STORAGE_ACCOUNT_NAME, or name it: abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
        ));
    }
    match source {
        CredentialSource::Anonymous | CredentialSource::Missing => {
            builder = builder.with_skip_signature(true);
        }
        CredentialSource::AzureCommandLine => builder = builder.with_use_azure_cli(true),
        _ => {}
    }
    let store = builder
        .build()
        .map_err(|error| ObjectError::from_store(&url, &error))?;
    let store = Arc::new(store);
    Ok(Client::Cloud {
        objects: Arc::<object_store::azure::MicrosoftAzure>::clone(&store),
        pages: store,
        connector,
    })
}
