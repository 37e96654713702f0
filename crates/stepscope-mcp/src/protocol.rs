//! The messages of the protocol: JSON-RPC 2.0, in both lifecycles.
//!
//! Revisions before 2026-07-28 begin with `initialize`. From then on every request names its revision in `_meta`, and results
//! say that they are complete and how long they may be cached. A request decides by itself which lifecycle it is of: the
//! server remembers nothing.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Map, Value, json};
use stepscope_engine::Engine;
use stepscope_model::spelling::nearest;
use stepscope_remote::Address;

use crate::answer::output_schema;
use crate::args::Object;
use crate::error::ToolError;
use crate::instructions::instructions;
use crate::stop::Stop;
use crate::tools::{Served, Tool};
use crate::{prompts, resources};

/// The stateless revision.
pub(crate) const STATELESS: &str = "2026-07-28";
/// The revisions with a handshake, oldest first.
pub(crate) const WITH_HANDSHAKE: [&str; 4] =
    ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Keys of a request's `_meta`.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// Key of a result's `_meta`.
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Answers the protocol's messages about the runs of an engine.
pub struct McpServer {
    served: Served,
}

/// An error of the protocol, not of a tool: the request cannot be dispatched.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    data: Option<Value>,
}

impl RpcError {
    pub(crate) const PARSE: i64 = -32_700;
    pub(crate) const INVALID_REQUEST: i64 = -32_600;
    pub(crate) const NO_SUCH_METHOD: i64 = -32_601;
    pub(crate) const INVALID_PARAMS: i64 = -32_602;
    pub(crate) const NO_SUCH_RESOURCE: i64 = -32_002;
    pub(crate) const HEADER_MISMATCH: i64 = -32_020;
    pub(crate) const UNSUPPORTED_VERSION: i64 = -32_022;

    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    fn unsupported(asked: &str) -> Self {
        let supported: Vec<&str> = WITH_HANDSHAKE.iter().copied().chain([STATELESS]).collect();
        let asked: String = asked.chars().take(100).collect();
        Self {
            data: Some(json!({"requested": asked, "supported": supported})),
            ..Self::new(Self::UNSUPPORTED_VERSION, "Unsupported protocol version")
        }
    }

    /// Returns the answer with this error.
    pub(crate) fn answer(&self, id: &Value) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    }
}

/// A message of a client.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The id of a request; `None` for a notification.
    pub(crate) id: Option<Value>,
    pub(crate) method: String,
    pub(crate) params: Object,
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// The answer to send: the message is no JSON, or no request and no notification.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Value> {
        let json: Value = serde_json::from_slice(bytes).map_err(|error| {
            RpcError::new(RpcError::PARSE, format!("the message is not JSON: {error}"))
                .answer(&Value::Null)
        })?;
        let id = json.get("id").cloned();
        let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
        let refused = |message: &str| {
            let known = id.clone().filter(is_id).unwrap_or(Value::Null);
            RpcError::new(RpcError::INVALID_REQUEST, message).answer(&known)
        };
        if json["jsonrpc"] != "2.0" {
            return Err(refused("the message is no object of JSON-RPC 2.0"));
        }
        if id.as_ref().is_some_and(|id| !is_id(id)) {
            return Err(refused("the id is no text and no whole number"));
        }
        let Some(method) = json["method"].as_str() else {
            return Err(refused("the message has no method"));
        };
        let params = match json.get("params") {
            None => Object::new(),
            Some(Value::Object(params)) => params.clone(),
            Some(_) => return Err(refused("'params' is no object")),
        };
        Ok(Self {
            id: id.clone(),
            method: method.to_owned(),
            params,
        })
    }

    /// Returns the revision that the request names in its `_meta`.
    pub(crate) fn version(&self) -> Option<&str> {
        self.params.get("_meta")?.get(VERSION_KEY)?.as_str()
    }

    /// Returns whether the request is of the stateless lifecycle.
    pub(crate) fn is_stateless(&self) -> bool {
        self.method == "server/discover" || self.version() == Some(STATELESS)
    }

    /// Returns whether it is a call that may take long.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self.method.as_str(), "tools/call" | "resources/read")
    }
}

impl McpServer {
    /// Creates a server. Its clients may capture from programs at the addresses `capture_from`, and nowhere else.
    pub fn new(engine: Arc<Engine>, capture_from: Vec<Address>) -> Self {
        Self {
            served: Served {
                engine,
                capture_from,
            },
        }
    }

    /// Answers a message; `None` for a notification. Blocks.
    pub(crate) fn answer(&self, message: &Message, stop: &Stop) -> Option<Value> {
        let id = message.id.as_ref()?;
        Some(match self.dispatch(message, stop) {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => error.answer(id),
        })
    }

    fn dispatch(&self, message: &Message, stop: &Stop) -> Result<Value, RpcError> {
        let is_stateless = message.is_stateless();
        if let Some(version) = message.version()
            && version != STATELESS
            && !WITH_HANDSHAKE.contains(&version)
        {
            return Err(RpcError::unsupported(version));
        }
        if is_stateless {
            let meta = message.params.get("_meta");
            let has = |key: &str| meta.and_then(|meta| meta.get(key)).is_some();
            let missing: Vec<&str> = [VERSION_KEY, CAPABILITIES_KEY]
                .into_iter()
                .filter(|key| !has(key))
                .collect();
            if !missing.is_empty() {
                let text = format!("_meta lacks {}", missing.join(", "));
                return Err(RpcError::new(RpcError::INVALID_PARAMS, text));
            }
        }
        let params = &message.params;
        let (mut result, is_cacheable) = match message.method.as_str() {
            "initialize" if !is_stateless => (initialize(params)?, false),
            "ping" if !is_stateless => (Object::new(), false),
            "server/discover" => (discover(), true),
            "tools/list" => (
                listed("tools", Tool::all(&self.served).map(describe).collect()),
                true,
            ),
            "tools/call" => (self.call(params, stop)?, false),
            "resources/list" => (listed("resources", resources::list()), true),
            "resources/templates/list" => {
                (listed("resourceTemplates", resources::templates()), true)
            }
            "resources/read" => {
                let uri = text_of(params, "uri")?;
                let content = resources::read(&self.served, uri, stop).map_err(|error| {
                    let code = if is_stateless {
                        RpcError::INVALID_PARAMS
                    } else {
                        RpcError::NO_SUCH_RESOURCE
                    };
                    RpcError::new(code, error.text())
                })?;
                (listed("contents", vec![content]), true)
            }
            "prompts/list" => (listed("prompts", prompts::list()), true),
            "prompts/get" => {
                let name = text_of(params, "name")?;
                let prompt = prompts::get(name, &object_of(params, "arguments")?);
                let prompt = prompt
                    .map_err(|error| RpcError::new(RpcError::INVALID_PARAMS, error.text()))?;
                (prompt, false)
            }
            _ => {
                let text = "there is no such method";
                return Err(RpcError::new(RpcError::NO_SUCH_METHOD, text));
            }
        };
        if is_stateless {
            result.insert("resultType".to_owned(), "complete".into());
            if is_cacheable {
                // Runs may appear at any time.
                result.insert("ttlMs".to_owned(), 0.into());
                result.insert("cacheScope".to_owned(), "private".into());
            }
        }
        Ok(result.into())
    }

    /// Calls a tool. Its errors are results, which clients show to the model.
    fn call(&self, params: &Object, stop: &Stop) -> Result<Object, RpcError> {
        let name = text_of(params, "name")?;
        let Some(tool) = Tool::by_name(name) else {
            let similar = nearest(name, Tool::all(&self.served).map(|tool| tool.name));
            let similar =
                similar.map_or_else(String::new, |name| format!("; did you mean '{name}'?"));
            let text = format!("there is no tool of this name{similar}");
            return Err(RpcError::new(RpcError::INVALID_PARAMS, text));
        };
        let arguments = object_of(params, "arguments")?;
        let work = || tool.call(&self.served, &arguments, stop);
        // A defect of one analysis must not end the server.
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let answer = answer.unwrap_or_else(|_panic| {
            Err(ToolError::new(
                "cannot answer: the call broke off",
                "this is a defect of stepscope: report it with the call",
            ))
        });
        let text = |text: String| json!({"type": "text", "text": text});
        let result = match answer {
            Ok(answer) => {
                let picture = answer.png.map(|png| {
                    json!({"type": "image", "data": BASE64.encode(png), "mimeType": "image/png"})
                });
                let content: Vec<Value> = [text(answer.text)].into_iter().chain(picture).collect();
                json!({"content": content, "structuredContent": answer.json, "isError": false})
            }
            Err(error) => json!({"content": [text(error.text())], "isError": true}),
        };
        Ok(object(result))
    }
}

fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn listed(key: &str, items: Vec<Value>) -> Object {
    Map::from_iter([(key.to_owned(), items.into())])
}

fn text_of<'a>(params: &'a Object, key: &str) -> Result<&'a str, RpcError> {
    let text = params.get(key).and_then(Value::as_str);
    text.ok_or_else(|| RpcError::new(RpcError::INVALID_PARAMS, format!("'{key}' is missing")))
}

fn object_of(params: &Object, key: &str) -> Result<Object, RpcError> {
    match params.get(key) {
        None | Some(Value::Null) => Ok(Object::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => {
            let text = format!("'{key}' is no object");
            Err(RpcError::new(RpcError::INVALID_PARAMS, text))
        }
    }
}

fn server_info() -> Value {
    json!({
        "name": "stepscope",
        "title": "stepscope: one profiler for machine-learning programs",
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn capabilities() -> Value {
    json!({"tools": {}, "resources": {}, "prompts": {}})
}

/// Begins the lifecycle with a handshake, in the client's revision if it is known.
fn initialize(params: &Object) -> Result<Object, RpcError> {
    let asked = text_of(params, "protocolVersion")?;
    let newest = WITH_HANDSHAKE[WITH_HANDSHAKE.len() - 1];
    let version = if WITH_HANDSHAKE.contains(&asked) {
        asked
    } else {
        newest
    };
    Ok(object(json!({
        "protocolVersion": version,
        "capabilities": capabilities(),
        "serverInfo": server_info(),
        "instructions": instructions(),
    })))
}

fn discover() -> Object {
    let versions: Vec<&str> = WITH_HANDSHAKE.iter().copied().chain([STATELESS]).collect();
    object(json!({
        "supportedVersions": versions,
        "capabilities": capabilities(),
        "instructions": instructions(),
        "_meta": {SERVER_KEY: server_info()},
    }))
}

/// Describes a tool to clients.
fn describe(tool: &Tool) -> Value {
    let is_read_only = tool.is_read_only();
    json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.full_description(),
        "inputSchema": tool.input_schema(),
        "outputSchema": output_schema(),
        "annotations": {
            "title": tool.title,
            "readOnlyHint": is_read_only,
            "destructiveHint": false,
            "idempotentHint": is_read_only,
            "openWorldHint": !is_read_only,
        },
    })
}

#[cfg(test)]
mod tests {
    use stepscope_engine::EngineOptions;

    use super::*;

    fn server() -> McpServer {
        let options = EngineOptions {
            use_cache: false,
            watch: false,
            ..EngineOptions::new(Vec::new())
        };
        McpServer::new(Engine::new(options).unwrap(), Vec::new())
    }

    #[allow(clippy::needless_pass_by_value, reason = "callers pass literals")]
    fn ask(method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let message = Message::read(message.to_string().as_bytes()).unwrap();
        let answer = server().answer(&message, &Stop::default()).unwrap();
        assert_eq!(
            (&answer["jsonrpc"], &answer["id"]),
            (&json!("2.0"), &json!(7))
        );
        answer
    }

    fn meta(version: &str) -> Value {
        json!({"_meta": {VERSION_KEY: version, CAPABILITIES_KEY: {}}})
    }

    #[test]
    fn a_handshake_agrees_on_a_revision() {
        for (asked, expected) in [
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            (STATELESS, "2025-11-25"),
            ("1999-01-01", "2025-11-25"),
        ] {
            let answer = ask("initialize", json!({"protocolVersion": asked}));
            assert_eq!(answer["result"]["protocolVersion"], expected);
            assert_eq!(answer["result"]["serverInfo"]["name"], "stepscope");
        }
    }

    #[test]
    fn stateless_results_are_complete_and_cacheable() {
        for method in [
            "server/discover",
            "tools/list",
            "prompts/list",
            "resources/list",
        ] {
            let result = &ask(method, meta(STATELESS))["result"];
            assert_eq!(result["resultType"], "complete", "{method}");
            assert_eq!(result["ttlMs"], 0, "{method}");
        }
        let result = &ask("tools/list", json!({}))["result"];
        assert!(result.get("resultType").is_none() && result["tools"].is_array());
        assert_eq!(
            ask("ping", meta(STATELESS))["error"]["code"],
            RpcError::NO_SUCH_METHOD
        );
        assert_eq!(ask("ping", json!({}))["result"], json!({}));
    }

    #[test]
    fn requests_of_other_revisions_name_the_supported_ones() {
        let error = &ask("tools/list", meta("2030-01-01"))["error"];
        assert_eq!(error["code"], RpcError::UNSUPPORTED_VERSION);
        assert_eq!(error["data"]["supported"][4], STATELESS);
        let error = &ask("server/discover", json!({}))["error"];
        assert_eq!(error["code"], RpcError::INVALID_PARAMS);
    }

    #[test]
    fn messages_that_are_none_get_an_error() {
        for (bytes, code) in [
            (&b"{"[..], RpcError::PARSE),
            (b"\xff", RpcError::PARSE),
            (b"[]", RpcError::INVALID_REQUEST),
            (b"{\"id\": 1}", RpcError::INVALID_REQUEST),
            (
                b"{\"jsonrpc\": \"2.0\", \"id\": 1}",
                RpcError::INVALID_REQUEST,
            ),
            (
                b"{\"jsonrpc\": \"2.0\", \"id\": {}, \"method\": \"ping\"}",
                RpcError::INVALID_REQUEST,
            ),
            (
                b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\", \"params\": []}",
                RpcError::INVALID_REQUEST,
            ),
        ] {
            let answer = Message::read(bytes).unwrap_err();
            assert_eq!(
                answer["error"]["code"],
                code,
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn unknown_methods_and_tools_are_errors_of_the_protocol() {
        assert_eq!(
            ask("tools/delete", json!({}))["error"]["code"],
            RpcError::NO_SUCH_METHOD
        );
        let error = &ask("tools/call", json!({"name": "list_run"}))["error"];
        assert_eq!(error["code"], RpcError::INVALID_PARAMS);
        assert!(
            error["message"].as_str().unwrap().contains("'list_runs'"),
            "{error}"
        );
        let result = &ask("tools/call", json!({"name": "overview"}))["result"];
        assert_eq!(result["isError"], true);
        let notification =
            Message::read(b"{\"jsonrpc\": \"2.0\", \"method\": \"notifications/initialized\"}");
        assert_eq!(
            server().answer(&notification.unwrap(), &Stop::default()),
            None
        );
    }
}
