//! Decoder for the part of Python's marshal format that `cProfile` statistics use: numbers, texts,
//! tuples, dictionaries, and references to earlier objects.
//!
//! The decoder is not recursive: the caller requests the expected type at each position. A
//! reference contains the index of an object, counted in the order in which objects start; the
//! decoder stores a [`Slot`] for each.

use std::sync::Arc;

/// Bit of a type byte: the object gets an index for references.
const FLAG: u8 = 0x80;

/// Decoding error and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) at: usize,
    pub(crate) what: &'static str,
    /// Whether the bytes end too early.
    pub(crate) cut: bool,
}

/// An object that references can name.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    Text(Arc<str>),
    Int(i64),
    Float(f64),
    /// A function, with the number that the caller assigned.
    Function(u32),
    /// Calls from one caller.
    Calls([f64; 4]),
    /// Any other object, or an incomplete one.
    Opaque,
}

/// Sequential decoder of objects.
pub(crate) struct Marshal<'b> {
    bytes: &'b [u8],
    pub(crate) at: usize,
    slots: Vec<Slot>,
    /// Number of texts that were not UTF-8.
    pub(crate) bad_texts: u64,
}

/// Start of a tuple.
pub(crate) enum Begun {
    /// A tuple with this number of items, and its index if it has one.
    Tuple(usize, Option<usize>),
    /// A reference to this object.
    Known(Slot),
}

type Found<T> = Result<T, Broken>;

impl<'b> Marshal<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            slots: Vec::new(),
            bad_texts: 0,
        }
    }

    fn broken<T>(&self, what: &'static str) -> Found<T> {
        let cut = self.at >= self.bytes.len();
        Err(Broken {
            at: self.at,
            what,
            cut,
        })
    }

    fn take(&mut self, count: usize) -> Found<&'b [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if let Some(taken) = rest.get(..count) {
            self.at += count;
            Ok(taken)
        } else {
            Err(Broken {
                at: self.at,
                what: "the bytes end early",
                cut: true,
            })
        }
    }

    fn array<const N: usize>(&mut self) -> Found<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> Found<u8> {
        Ok(self.take(1)?[0])
    }

    fn length(&mut self) -> Found<usize> {
        let length = u32::from_le_bytes(self.array()?);
        usize::try_from(length).or_else(|_| self.broken("a length is too large"))
    }

    /// Reads the next type without its flag; reserves an index for the object if the flag is set.
    fn kind(&mut self) -> Found<(u8, Option<usize>)> {
        let kind = self.byte()?;
        let place = (kind & FLAG != 0).then(|| {
            self.slots.push(Slot::Opaque);
            self.slots.len() - 1
        });
        Ok((kind & !FLAG, place))
    }

    /// Stores an object under its index.
    pub(crate) fn keep(&mut self, place: Option<usize>, slot: impl FnOnce() -> Slot) {
        if let Some(kept) = place.and_then(|place| self.slots.get_mut(place)) {
            *kept = slot();
        }
    }

    fn known(&mut self) -> Found<Slot> {
        let number = self.length()?;
        match self.slots.get(number) {
            Some(slot) => Ok(slot.clone()),
            None => self.broken("a reference to what is not there"),
        }
    }

    /// Reads the start of a dictionary.
    pub(crate) fn dictionary(&mut self) -> Found<()> {
        match self.kind()?.0 {
            b'{' => Ok(()),
            _ => self.broken("no dictionary where one belongs"),
        }
    }

    /// Returns whether the end of a dictionary comes next, and skips it.
    pub(crate) fn ends(&mut self) -> Found<bool> {
        match self.bytes.get(self.at) {
            Some(b'0') => {
                self.at += 1;
                Ok(true)
            }
            Some(_) => Ok(false),
            None => self.broken("the bytes end early"),
        }
    }

    /// Reads the start of a tuple, or a reference to one.
    pub(crate) fn tuple(&mut self) -> Found<Begun> {
        match self.kind()? {
            (b')', place) => Ok(Begun::Tuple(self.byte()?.into(), place)),
            (b'(', place) => Ok(Begun::Tuple(self.length()?, place)),
            (b'r', _) => Ok(Begun::Known(self.known()?)),
            _ => self.broken("no tuple where one belongs"),
        }
    }

    /// Returns whether an integer comes next.
    pub(crate) fn is_int(&self) -> bool {
        let kind = self.bytes.get(self.at).map(|kind| kind & !FLAG);
        matches!(kind, Some(b'i' | b'l' | b'I'))
    }

    /// Reads an integer or a float.
    pub(crate) fn number(&mut self) -> Found<Slot> {
        let (kind, place) = self.kind()?;
        let slot = match kind {
            b'i' => Slot::Int(i32::from_le_bytes(self.array()?).into()),
            b'I' => Slot::Int(i64::from_le_bytes(self.array()?)),
            b'l' => Slot::Int(self.long()?),
            b'g' => Slot::Float(f64::from_le_bytes(self.array()?)),
            b'f' => Slot::Float(self.float_text()?),
            b'T' => Slot::Int(1),
            b'F' => Slot::Int(0),
            b'r' => match self.known()? {
                slot @ (Slot::Int(_) | Slot::Float(_)) => slot,
                _ => return self.broken("a reference to no number"),
            },
            _ => return self.broken("no number where one belongs"),
        };
        self.keep(place, || slot.clone());
        Ok(slot)
    }

    /// Reads an integer of any size, in digits of 15 bits; saturates at the limits of `i64`.
    fn long(&mut self) -> Found<i64> {
        let digits = i32::from_le_bytes(self.array()?);
        let count = usize::try_from(digits.unsigned_abs()).unwrap_or(usize::MAX);
        let bytes = self.take(count.saturating_mul(2))?;
        let mut value: i128 = 0;
        for digit in bytes.chunks_exact(2).rev() {
            let digit = u16::from_le_bytes([digit[0], digit[1]]);
            value = (value << 15 | i128::from(digit)).min(i128::from(i64::MAX));
        }
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        Ok(if digits < 0 { -value } else { value })
    }

    fn float_text(&mut self) -> Found<f64> {
        let length = self.byte()?;
        let text = self.take(length.into())?;
        let value = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        match value {
            Some(value) => Ok(value),
            None => self.broken("a number's text is no number"),
        }
    }

    /// Reads a text.
    pub(crate) fn text(&mut self) -> Found<Arc<str>> {
        let (kind, place) = self.kind()?;
        let length = match kind {
            b'z' | b'Z' => self.byte()?.into(),
            b'a' | b'A' | b'u' | b't' | b's' => self.length()?,
            b'r' => {
                return match self.known()? {
                    Slot::Text(text) => Ok(text),
                    _ => self.broken("a reference to no text"),
                };
            }
            _ => return self.broken("no text where one belongs"),
        };
        let bytes = self.take(length)?;
        let text: Arc<str> = if let Ok(text) = std::str::from_utf8(bytes) {
            super::truncated(text).into()
        } else {
            // Lone surrogates, which occur in undecodable file names.
            self.bad_texts += 1;
            super::truncated(&String::from_utf8_lossy(bytes)).into()
        };
        self.keep(place, || Slot::Text(Arc::clone(&text)));
        Ok(text)
    }
}
