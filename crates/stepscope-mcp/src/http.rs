//! The HTTP transport: one message in the body of a `POST`, one answer in that of the response.

use crate::protocol::{McpServer, Message, RpcError, STATELESS, WITH_HANDSHAKE};
use crate::stop::Stop;

/// The headers that repeat parts of a message for intermediaries.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpHeaders<'a> {
    /// `MCP-Protocol-Version`.
    pub protocol_version: Option<&'a str>,
    /// `Mcp-Method`.
    pub method: Option<&'a str>,
    /// `Mcp-Name`: the name of the tool or prompt, or the address of the resource.
    pub name: Option<&'a str>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// JSON; `None` after a notification.
    pub body: Option<Vec<u8>>,
}

impl McpServer {
    /// Answers the message in the body of a `POST`. Blocks until the answer is complete, or `stop` stops it.
    pub fn post(&self, body: &[u8], headers: &HttpHeaders<'_>, stop: &Stop) -> HttpAnswer {
        let respond = |status: u16, answer: &serde_json::Value| HttpAnswer {
            status,
            body: Some(answer.to_string().into_bytes()),
        };
        let message = match Message::read(body) {
            Ok(message) => message,
            Err(answer) => return respond(400, &answer),
        };
        let Some(id) = &message.id else {
            return HttpAnswer {
                status: 202,
                body: None,
            };
        };
        if let Err(error) = check(headers, &message) {
            return respond(400, &error.answer(id));
        }
        let answer = self.answer(&message, stop).unwrap_or_default();
        let status = match answer["error"]["code"].as_i64() {
            Some(RpcError::UNSUPPORTED_VERSION) => 400,
            Some(RpcError::NO_SUCH_METHOD) if message.is_stateless() => 404,
            _ => 200,
        };
        respond(status, &answer)
    }
}

/// Checks that the headers agree with the message.
fn check(headers: &HttpHeaders<'_>, message: &Message) -> Result<(), RpcError> {
    let mismatch = |header: &str| {
        let text = format!("the header {header} differs from the message");
        Err(RpcError::new(RpcError::HEADER_MISMATCH, text))
    };
    if let (Some(given), Some(version)) = (headers.protocol_version, message.version())
        && given != version
    {
        return mismatch("MCP-Protocol-Version");
    }
    if !message.is_stateless() {
        let is_known = |given: &str| given == STATELESS || WITH_HANDSHAKE.contains(&given);
        return match headers.protocol_version {
            Some(given) if !is_known(given) => mismatch("MCP-Protocol-Version"),
            _ => Ok(()),
        };
    }
    if headers.protocol_version.is_none() {
        return mismatch("MCP-Protocol-Version");
    }
    if headers.method != Some(message.method.as_str()) {
        return mismatch("Mcp-Method");
    }
    let key = match message.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let name = message.params.get(key).and_then(serde_json::Value::as_str);
    if headers.name != name {
        return mismatch("Mcp-Name");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(method: &str, version: Option<&str>) -> Message {
        let mut params = json!({"name": "find"});
        if let Some(version) = version {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Message::read(message.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn headers_of_the_stateless_revision_must_agree_with_the_message() {
        let call = message("tools/call", Some(STATELESS));
        let headers = |version, method, name| HttpHeaders {
            protocol_version: version,
            method,
            name,
        };
        let right = headers(Some(STATELESS), Some("tools/call"), Some("find"));
        assert_eq!(check(&right, &call), Ok(()));
        for wrong in [
            headers(None, Some("tools/call"), Some("find")),
            headers(Some("2025-11-25"), Some("tools/call"), Some("find")),
            headers(Some(STATELESS), None, Some("find")),
            headers(Some(STATELESS), Some("tools/list"), Some("find")),
            headers(Some(STATELESS), Some("tools/call"), Some("event")),
            headers(Some(STATELESS), Some("tools/call"), None),
        ] {
            let error = check(&wrong, &call).unwrap_err();
            assert_eq!(error.code, RpcError::HEADER_MISMATCH, "{wrong:?}");
        }
    }

    #[test]
    fn requests_after_a_handshake_need_no_headers() {
        let call = message("tools/call", None);
        assert_eq!(check(&HttpHeaders::default(), &call), Ok(()));
        let headers = |version| HttpHeaders {
            protocol_version: Some(version),
            ..HttpHeaders::default()
        };
        assert_eq!(check(&headers("2025-11-25"), &call), Ok(()));
        assert!(check(&headers("1999-01-01"), &call).is_err());
    }
}
