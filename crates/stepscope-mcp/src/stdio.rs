//! The stdio transport: one message a line, on stdin and stdout.
//!
//! The calling thread reads, so that a client can cancel calls that run. Calls that may take long run on worker threads;
//! their answers follow in any order.

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _, Write};
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::Value;

use crate::protocol::{McpServer, Message, RpcError};
use crate::stop::Stop;

/// Maximum length of a message, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of calls that wait for a worker.
const WAITING: usize = 256;

/// The calls that wait or run, by their id as JSON.
type Running = Mutex<HashMap<String, Arc<Stop>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the protocol on stdin and stdout until stdin ends. Nothing else may write to stdout.
///
/// # Errors
///
/// If stdin cannot be read, or a thread cannot be started.
pub fn serve_stdio(server: &McpServer) -> io::Result<()> {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let out = |answer: &Value| {
        let mut line = answer.to_string();
        line.push('\n');
        let mut out = io::stdout().lock();
        // The client may have left: reading ends then, too.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    };
    serve(server, &mut io::stdin().lock(), &out, threads.max(2))
}

/// Reads messages until `input` ends, passes answers to `out`, and waits for the calls that run.
fn serve(
    server: &McpServer,
    input: &mut impl BufRead,
    out: &(impl Fn(&Value) + Sync),
    workers: usize,
) -> io::Result<()> {
    let running = Running::default();
    let (calls, waiting) = sync_channel::<Message>(WAITING);
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        for _ in 0..workers {
            thread::Builder::new()
                .name("stepscope-mcp".to_owned())
                .spawn_scoped(scope, || work(server, &waiting, &running, out))?;
        }
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = input
                .by_ref()
                .take(MAX_BYTES + 1)
                .read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            if read as u64 > MAX_BYTES {
                skip_line(input, &line)?;
                let text = format!("a message has at most {MAX_BYTES} bytes");
                out(&RpcError::new(RpcError::INVALID_REQUEST, text).answer(&Value::Null));
                continue;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let message = match Message::read(&line) {
                Ok(message) => message,
                Err(answer) => {
                    out(&answer);
                    continue;
                }
            };
            if message.method == "notifications/cancelled" {
                let id = message.params.get("requestId").map(Value::to_string);
                let stop = id.and_then(|id| lock(&running).remove(&id));
                if let Some(stop) = stop {
                    stop.stop();
                }
                continue;
            }
            let Some(id) = message.id.clone().filter(|_| message.is_long()) else {
                if let Some(answer) = server.answer(&message, &Stop::default()) {
                    out(&answer);
                }
                continue;
            };
            lock(&running).insert(id.to_string(), Arc::default());
            if let Err(TrySendError::Full(message)) = calls.try_send(message) {
                lock(&running).remove(&id.to_string());
                let text = format!("{WAITING} calls wait already");
                let error = RpcError::new(RpcError::INVALID_REQUEST, text);
                out(&error.answer(&message.id.unwrap_or_default()));
            }
        }
        // Workers end after the last call.
        drop(calls);
        Ok(())
    })
}

/// Answers calls until none can come any more.
fn work(
    server: &McpServer,
    waiting: &Mutex<Receiver<Message>>,
    running: &Running,
    out: &(impl Fn(&Value) + Sync),
) {
    loop {
        let next = lock(waiting).recv();
        let Ok(message) = next else {
            return;
        };
        let id = message
            .id
            .as_ref()
            .map(Value::to_string)
            .unwrap_or_default();
        // A call that was cancelled while it waited is no longer listed.
        let Some(stop) = lock(running).get(&id).map(Arc::clone) else {
            continue;
        };
        let answer = server.answer(&message, &stop);
        // The client of a cancelled call expects no answer.
        let is_wanted = lock(running).remove(&id).is_some();
        if let Some(answer) = answer.filter(|_| is_wanted) {
            out(&answer);
        }
    }
}

/// Reads the rest of a line that is too long.
fn skip_line(input: &mut impl BufRead, begun: &[u8]) -> io::Result<()> {
    if begun.ends_with(b"\n") {
        return Ok(());
    }
    loop {
        let bytes = input.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let length = bytes.len();
        input.consume(end.map_or(length, |end| end + 1));
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stepscope_engine::{Engine, EngineOptions};

    use super::*;

    fn answers(input: &[u8]) -> Vec<Value> {
        let options = EngineOptions {
            use_cache: false,
            watch: false,
            ..EngineOptions::new(Vec::new())
        };
        let server = McpServer::new(Engine::new(options).unwrap(), Vec::new());
        let found = Mutex::new(Vec::new());
        let out = |answer: &Value| lock(&found).push(answer.clone());
        let mut input = input;
        serve(&server, &mut input, &out, 2).unwrap();
        let mut found = found.into_inner().unwrap();
        found.sort_by_key(|answer: &Value| answer["id"].to_string());
        found
    }

    #[test]
    fn every_request_of_the_input_is_answered_before_the_end() {
        let mut input = Vec::new();
        for id in 0..5 {
            let params = json!({"name": "list_runs", "arguments": {}});
            let call =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            writeln!(input, "{call}\n").unwrap();
        }
        input.extend(b"{\"jsonrpc\": \"2.0\", \"method\": \"notifications/initialized\"}\n");
        input.extend(b"{\"jsonrpc\": \"2.0\", \"id\": 5, \"method\": \"ping\"}");
        let found = answers(&input);
        let ids: Vec<&Value> = found.iter().map(|answer| &answer["id"]).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
        assert_eq!(found[0]["result"]["isError"], false);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let limit = usize::try_from(MAX_BYTES).unwrap();
        for length in [limit, limit + 1, 3 * limit] {
            let mut input = vec![b'x'; length];
            input.extend(b"\n{\"jsonrpc\": \"2.0\", \"id\": 5, \"method\": \"ping\"}\n");
            let found = answers(&input);
            assert_eq!(found.len(), 2, "{length}");
            assert_eq!(found[0]["result"], json!({}));
            assert_eq!(found[1]["error"]["code"], RpcError::INVALID_REQUEST);
        }
    }
}
