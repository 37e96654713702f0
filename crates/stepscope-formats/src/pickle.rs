//! Decoder of Python's pickle format for plain values, protocols 0 to 5. It creates no object and
//! calls nothing: an opcode that would is an error.
//!
//! Containers are numbers, so that a container with many references is stored once.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

/// A plain value. Texts and containers are indexes into [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A number above `i64::MAX`.
    Uint(u64),
    Float(f64),
    Text(u32),
    /// A list or tuple.
    List(u32),
    Dict(u32),
}

/// The reason why decoding stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PickleFault {
    /// The bytes end early.
    Truncated,
    /// The opcode calls Python code or refers to a class.
    RunsCode(&'static str),
    /// The bytes are no pickle of plain values.
    Damaged,
}

/// The decoded values.
#[derive(Default)]
pub(crate) struct Pickle<'a> {
    texts: Vec<Cow<'a, [u8]>>,
    /// Elements of lists; keys and values of dictionaries, alternating.
    containers: Vec<Vec<Value>>,
}

/// Keys of a dictionary that [`Pickle::get`] compares: hostile dictionaries are longer.
const MAX_KEYS: usize = 64;

impl<'a> Pickle<'a> {
    /// Copies what borrows from the file.
    pub(crate) fn into_owned(self) -> Pickle<'static> {
        let texts = self.texts.into_iter();
        Pickle {
            texts: texts.map(|text| Cow::Owned(text.into_owned())).collect(),
            containers: self.containers,
        }
    }

    /// Adds a text.
    pub(crate) fn add_text(&mut self, text: impl Into<Cow<'a, [u8]>>) -> Value {
        let at = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.into());
        Value::Text(at)
    }

    /// Adds a list.
    pub(crate) fn add_list(&mut self, elements: Vec<Value>) -> Value {
        Value::List(self.add_container(elements))
    }

    /// Adds a dictionary of keys and values, alternating.
    pub(crate) fn add_dict(&mut self, pairs: Vec<Value>) -> Value {
        Value::Dict(self.add_container(pairs))
    }

    fn add_container(&mut self, elements: Vec<Value>) -> u32 {
        let at = u32::try_from(self.containers.len()).unwrap_or(u32::MAX);
        self.containers.push(elements);
        at
    }

    /// Returns the elements of a list or tuple; none of another value.
    pub(crate) fn list(&self, value: Value) -> &[Value] {
        match value {
            Value::List(at) => self.containers.get(at as usize).map_or(&[], Vec::as_slice),
            _ => &[],
        }
    }

    /// Returns the keys and values of a dictionary; none of another value.
    pub(crate) fn pairs(&self, value: Value) -> impl Iterator<Item = (Value, Value)> {
        let all: &[Value] = match value {
            Value::Dict(at) => self.containers.get(at as usize).map_or(&[], Vec::as_slice),
            _ => &[],
        };
        all.as_chunks::<2>().0.iter().map(|pair| (pair[0], pair[1]))
    }

    /// Returns a value of a dictionary with short names as keys; `None` if it is absent.
    pub(crate) fn get(&self, dict: Value, key: &str) -> Value {
        let Value::Dict(at) = dict else {
            return Value::None;
        };
        let all = self.containers.get(at as usize).map_or(&[][..], |all| all);
        let pairs = all.as_chunks::<2>().0.iter().take(MAX_KEYS);
        pairs
            .filter(|pair| self.bytes(pair[0]) == Some(key.as_bytes()))
            .map(|pair| pair[1])
            .next_back()
            .unwrap_or(Value::None)
    }

    fn bytes(&self, value: Value) -> Option<&[u8]> {
        match value {
            Value::Text(at) => self.texts.get(at as usize).map(|text| &**text),
            _ => None,
        }
    }

    /// Returns a text; empty for other values.
    pub(crate) fn text(&self, value: Value) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(value).unwrap_or_default())
    }

    /// Returns a whole number that is not negative.
    pub(crate) fn whole(value: Value) -> Option<u64> {
        match value {
            Value::Int(number) => Some(u64::try_from(number).unwrap_or(0)),
            Value::Uint(number) => Some(number),
            Value::Bool(is) => Some(u64::from(is)),
            _ => None,
        }
    }
}

/// State of the stack machine.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Lengths of the stack at open marks.
    marks: Vec<usize>,
    memo: FxHashMap<u64, Value>,
    values: Pickle<'a>,
}

/// Decodes a pickle: its values, the outermost one, the fault that stopped it, and where. A
/// truncated pickle gives its readable part.
pub(crate) fn decode(bytes: &[u8]) -> (Pickle<'_>, Value, Option<PickleFault>, usize) {
    let mut machine = Machine {
        bytes,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: FxHashMap::default(),
        values: Pickle::default(),
    };
    let fault = loop {
        match machine.step() {
            Ok(false) => {}
            Ok(true) => break None,
            Err(fault) => break Some(fault),
        }
    };
    if fault.is_some() {
        machine.close_open();
    }
    let root = machine.stack.first().copied().unwrap_or(Value::None);
    (machine.values, root, fault, machine.at)
}

type Outcome<T> = Result<T, PickleFault>;

impl<'a> Machine<'a> {
    fn take(&mut self, count: usize) -> Outcome<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or(PickleFault::Truncated)?;
        let found = self.bytes.get(self.at..end).ok_or(PickleFault::Truncated)?;
        self.at = end;
        Ok(found)
    }

    /// Reads a little-endian number of `count` bytes, at most eight.
    fn number(&mut self, count: usize) -> Outcome<u64> {
        let bytes = self.take(count)?;
        let digits = bytes.iter().rev();
        Ok(digits.fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Reads the bytes that follow a length of `count` bytes.
    fn counted(&mut self, count: usize) -> Outcome<&'a [u8]> {
        let length = self.number(count)?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn line(&mut self) -> Outcome<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest).ok_or(PickleFault::Truncated)?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    fn parsed<T: std::str::FromStr>(line: &[u8]) -> Outcome<T> {
        let text = std::str::from_utf8(line).map_err(|_not_text| PickleFault::Damaged)?;
        let text = text.trim().trim_end_matches('L');
        text.parse().map_err(|_no_number| PickleFault::Damaged)
    }

    fn text(&mut self, text: impl Into<Cow<'a, [u8]>>) -> Outcome<()> {
        let at = number_of(self.values.texts.len())?;
        self.values.texts.push(text.into());
        self.stack.push(Value::Text(at));
        Ok(())
    }

    fn container(&mut self, elements: Vec<Value>) -> Outcome<u32> {
        let at = number_of(self.values.containers.len())?;
        self.values.containers.push(elements);
        Ok(at)
    }

    fn list(&mut self, elements: Vec<Value>) -> Outcome<()> {
        let at = self.container(elements)?;
        self.stack.push(Value::List(at));
        Ok(())
    }

    fn dict(&mut self, pairs: Vec<Value>) -> Outcome<()> {
        let at = self.container(pairs)?;
        self.stack.push(Value::Dict(at));
        Ok(())
    }

    fn pop(&mut self) -> Outcome<Value> {
        let base = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= base {
            return Err(PickleFault::Damaged);
        }
        self.stack.pop().ok_or(PickleFault::Damaged)
    }

    fn last(&mut self, count: usize) -> Outcome<Vec<Value>> {
        let base = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count);
        let from = from.filter(|from| *from >= base);
        Ok(self.stack.split_off(from.ok_or(PickleFault::Damaged)?))
    }

    fn pop_mark(&mut self) -> Outcome<Vec<Value>> {
        let mark = self.marks.pop().ok_or(PickleFault::Damaged)?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    /// Adds elements to the container on top of the stack.
    fn extend(&mut self, elements: &[Value]) -> Outcome<()> {
        let at = match self.stack.last() {
            Some(Value::List(at)) => *at,
            Some(Value::Dict(at)) if elements.len().is_multiple_of(2) => *at,
            _ => return Err(PickleFault::Damaged),
        };
        let container = self.values.containers.get_mut(at as usize);
        container
            .ok_or(PickleFault::Damaged)?
            .extend_from_slice(elements);
        Ok(())
    }

    fn put(&mut self, number: u64) -> Outcome<()> {
        let top = self.stack.last().copied().ok_or(PickleFault::Damaged)?;
        self.memo.insert(number, top);
        Ok(())
    }

    fn recall(&mut self, number: u64) -> Outcome<()> {
        let known = self.memo.get(&number).copied();
        self.stack.push(known.ok_or(PickleFault::Damaged)?);
        Ok(())
    }

    /// Puts the elements of unfinished containers into them.
    fn close_open(&mut self) {
        while let Ok(mut elements) = self.pop_mark() {
            if let Some(Value::Dict(_)) = self.stack.last() {
                elements.truncate(elements.len() / 2 * 2);
            }
            // Without a container before the mark, the elements have no meaning.
            let _ = self.extend(&elements);
        }
    }

    /// Executes one opcode; returns whether it was the last one.
    fn step(&mut self) -> Outcome<bool> {
        let opcode = self.take(1)?[0];
        if let Some(name) = runs_code(opcode) {
            return Err(PickleFault::RunsCode(name));
        }
        match opcode {
            b'.' => return Ok(true),
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let top = self.pop()?;
                self.stack.extend([top, top]);
            }
            0x94 => self.put(self.memo.len() as u64)?,
            b'p' => {
                let number = Self::parsed(self.line()?)?;
                self.put(number)?;
            }
            b'q' => {
                let number = self.number(1)?;
                self.put(number)?;
            }
            b'r' => {
                let number = self.number(4)?;
                self.put(number)?;
            }
            b'g' => {
                let number = Self::parsed(self.line()?)?;
                self.recall(number)?;
            }
            b'h' => {
                let number = self.number(1)?;
                self.recall(number)?;
            }
            b'j' => {
                let number = self.number(4)?;
                self.recall(number)?;
            }
            _ => {
                if !self.container_opcode(opcode)? {
                    self.scalar_opcode(opcode)?;
                }
            }
        }
        Ok(false)
    }

    /// Executes an opcode that makes or fills a container; returns whether it was one.
    fn container_opcode(&mut self, opcode: u8) -> Outcome<bool> {
        match opcode {
            b'}' => self.dict(Vec::new())?,
            b']' | b')' => self.list(Vec::new())?,
            b'd' => {
                let pairs = self.pop_mark()?;
                if !pairs.len().is_multiple_of(2) {
                    return Err(PickleFault::Damaged);
                }
                self.dict(pairs)?;
            }
            b'l' | b't' => {
                let elements = self.pop_mark()?;
                self.list(elements)?;
            }
            0x85..=0x87 => {
                let elements = self.last(usize::from(opcode - 0x84))?;
                self.list(elements)?;
            }
            b'a' | b's' => {
                let count = if opcode == b'a' { 1 } else { 2 };
                let elements = self.last(count)?;
                self.extend(&elements)?;
            }
            b'e' | b'u' => {
                let elements = self.pop_mark()?;
                self.extend(&elements)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn scalar_opcode(&mut self, opcode: u8) -> Outcome<()> {
        let value = match opcode {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'J' => {
                let bits = u32::try_from(self.number(4)?).unwrap_or(0);
                Value::Int(i64::from(bits.cast_signed()))
            }
            b'K' => whole(self.number(1)?.into()),
            b'M' => whole(self.number(2)?.into()),
            0x8a => whole(signed(self.counted(1)?)),
            0x8b => whole(signed(self.counted(4)?)),
            b'I' => match self.line()? {
                b"00" => Value::Bool(false),
                b"01" => Value::Bool(true),
                digits => whole(Self::parsed(digits)?),
            },
            b'L' => whole(Self::parsed(self.line()?)?),
            b'F' => Value::Float(Self::parsed(self.line()?)?),
            b'G' => Value::Float(f64::from_bits(self.number(8)?.swap_bytes())),
            b'U' | b'C' | 0x8c => {
                let text = self.counted(1)?;
                return self.text(text);
            }
            b'T' | b'X' | b'B' => {
                let text = self.counted(4)?;
                return self.text(text);
            }
            0x8d | 0x8e | 0x96 => {
                let text = self.counted(8)?;
                return self.text(text);
            }
            b'V' => {
                let text = unescaped(self.line()?);
                return self.text(text);
            }
            b'S' => {
                let line = self.line()?.trim_ascii();
                let quoted = line.len().checked_sub(1).and_then(|end| line.get(1..end));
                let text = unescaped(quoted.ok_or(PickleFault::Damaged)?);
                return self.text(text);
            }
            _ => return Err(PickleFault::Damaged),
        };
        self.stack.push(value);
        Ok(())
    }
}

fn number_of(length: usize) -> Outcome<u32> {
    u32::try_from(length).map_err(|_too_many| PickleFault::Damaged)
}

/// Returns the name of an opcode that refers to a class, calls it, or needs the program's help.
const fn runs_code(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        b'c' => "GLOBAL",
        0x93 => "STACK_GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        _ => return None,
    })
}

/// Returns a number as a value; numbers of more than 64 bits saturate.
fn whole(number: i128) -> Value {
    match (i64::try_from(number), u64::try_from(number)) {
        (Ok(number), _) => Value::Int(number),
        (_, Ok(number)) => Value::Uint(number),
        _ if number < 0 => Value::Int(i64::MIN),
        _ => Value::Uint(u64::MAX),
    }
}

/// Reads a little-endian number in two's complement; longer ones than 16 bytes saturate.
fn signed(bytes: &[u8]) -> i128 {
    let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    if bytes.len() > 16 {
        return if is_negative { i128::MIN } else { i128::MAX };
    }
    let start = if is_negative { -1 } else { 0 };
    let digits = bytes.iter().rev();
    digits.fold(start, |sum, byte| sum << 8 | i128::from(*byte))
}

/// Resolves the escapes `\uXXXX`, `\xXX`, `\\`, `\n`, `\t` and quotes of protocol 0.
fn unescaped(line: &[u8]) -> Cow<'_, [u8]> {
    if !line.contains(&b'\\') {
        return Cow::Borrowed(line);
    }
    let text = String::from_utf8_lossy(line);
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let letter = rest.chars().next().unwrap_or('\\');
        let digits = match letter {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let code = rest.get(1..=digits).filter(|_| digits > 0);
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
        if let Some(decoded) = code.and_then(char::from_u32) {
            out.push(decoded);
            rest = &rest[digits + 1..];
        } else {
            out.push(match letter {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            });
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    Cow::Owned(out.into_bytes())
}
