//! Pictures of rectangles and short texts, in at most 16 colours.

use std::convert::Infallible;
use std::io::Write as _;

use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::iso_8859_1::FONT_6X10;
use embedded_graphics::pixelcolor::PixelColor;
use embedded_graphics::pixelcolor::raw::RawU4;
use embedded_graphics::text::{Baseline, Text};
use embedded_graphics::{Drawable as _, Pixel};
use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Width of a character, pixels.
pub(crate) const CHARACTER: u32 = 6;
/// Height of a line of text, pixels.
pub(crate) const LINE: u32 = 10;
/// Maximum number of colours: a pixel has four bits.
pub(crate) const COLOURS: usize = 16;

/// A colour: an index into the palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour(pub(crate) u8);

impl PixelColor for Colour {
    type Raw = RawU4;
}

/// Returns the width of a text, pixels.
pub(crate) fn text_width(text: &str) -> u32 {
    let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    characters.saturating_mul(CHARACTER)
}

/// A picture.
pub(crate) struct Canvas {
    width: u32,
    height: u32,
    /// Colour of each pixel, by rows.
    pixels: Vec<u8>,
}

impl Canvas {
    /// Creates a picture in the first colour.
    pub(crate) fn new(width: u32, height: u32) -> Self {
        Self {
            width,
            height,
            pixels: vec![0; width as usize * height as usize],
        }
    }

    /// Returns the width, pixels.
    pub(crate) const fn width(&self) -> u32 {
        self.width
    }

    /// Removes what is below a height.
    pub(crate) fn cropped(mut self, height: u32) -> Self {
        self.height = self.height.min(height);
        self.pixels
            .truncate(self.width as usize * self.height as usize);
        self
    }

    /// Fills a rectangle. What lies outside the picture is left out.
    pub(crate) fn fill(&mut self, x: u32, y: u32, width: u32, height: u32, colour: Colour) {
        let (left, right) = (x.min(self.width), x.saturating_add(width).min(self.width));
        for row in y..y.saturating_add(height).min(self.height) {
            let start = row as usize * self.width as usize;
            self.pixels[start + left as usize..start + right as usize].fill(colour.0);
        }
    }

    /// Writes as much of a text as a width holds. Characters outside ISO 8859-1 become question marks.
    pub(crate) fn text(&mut self, x: u32, y: u32, width: u32, text: &str, colour: Colour) {
        let fitting = (width / CHARACTER) as usize;
        let text: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(fitting)
            .collect();
        let (Ok(x), Ok(y)) = (i32::try_from(x), i32::try_from(y)) else {
            return;
        };
        let style = MonoTextStyle::new(&FONT_6X10, colour);
        let text = Text::with_baseline(&text, Point::new(x, y), style, Baseline::Top);
        let Ok(_end) = text.draw(self);
    }

    /// Encodes the picture as PNG with this palette of red, green and blue.
    pub(crate) fn png(&self, palette: &[[u8; 3]; COLOURS]) -> Vec<u8> {
        let mut header = Vec::new();
        header.extend(self.width.to_be_bytes());
        header.extend(self.height.to_be_bytes());
        // Four bits a pixel, which index a palette; the only compression and filtering; not interlaced.
        header.extend([4, 3, 0, 0, 0]);
        let mut rows = Vec::new();
        for row in self.pixels.chunks(self.width.max(1) as usize) {
            // No filter: indices of neighbours have no relation.
            rows.push(0);
            let pairs = row.chunks(2);
            rows.extend(pairs.map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)));
        }
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        // A vector takes everything.
        let _ = packed.write_all(&rows);
        let packed = packed.finish().unwrap_or_default();
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        for (kind, content) in [
            (b"IHDR", &header),
            (b"PLTE", &palette.concat()),
            (b"IDAT", &packed),
            (b"IEND", &Vec::new()),
        ] {
            #[allow(
                clippy::cast_possible_truncation,
                reason = "a picture has less than 4 GiB"
            )]
            file.extend((content.len() as u32).to_be_bytes());
            let start = file.len();
            file.extend(kind);
            file.extend(content);
            let checksum = crc32fast::hash(&file[start..]);
            file.extend(checksum.to_be_bytes());
        }
        file
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl DrawTarget for Canvas {
    type Color = Colour;
    type Error = Infallible;

    fn draw_iter<I>(&mut self, pixels: I) -> Result<(), Self::Error>
    where
        I: IntoIterator<Item = Pixel<Self::Color>>,
    {
        for Pixel(point, colour) in pixels {
            if let (Ok(x), Ok(y)) = (u32::try_from(point.x), u32::try_from(point.y)) {
                self.fill(x, y, 1, 1, colour);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::ZlibDecoder;

    use super::*;

    /// Decodes a picture: width, and the colour of each pixel.
    fn decoded(file: &[u8]) -> (u32, Vec<u8>) {
        let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
        assert_eq!(&file[12..16], b"IHDR");
        let width = number(16);
        let palette = 8 + 12 + number(8) as usize;
        let content = palette + 12 + number(palette) as usize;
        assert_eq!(&file[content + 4..content + 8], b"IDAT");
        let packed = &file[content + 8..content + 8 + number(content) as usize];
        let mut rows = Vec::new();
        ZlibDecoder::new(packed).read_to_end(&mut rows).unwrap();
        let of_row = |row: &[u8]| -> Vec<u8> {
            assert_eq!(row[0], 0, "no filter");
            let pixels = row[1..].iter().flat_map(|pair| [pair >> 4, pair & 15]);
            pixels.take(width as usize).collect()
        };
        let bytes = 1 + width.div_ceil(2) as usize;
        (width, rows.chunks(bytes).flat_map(of_row).collect())
    }

    #[test]
    fn files_have_the_pixels() {
        // An odd width: the last byte of a row has one pixel.
        let mut canvas = Canvas::new(5, 3);
        canvas.fill(1, 1, 3, 1, Colour(9));
        let (width, pixels) = decoded(&canvas.png(&[[0; 3]; COLOURS]));
        assert_eq!(width, 5);
        assert_eq!(pixels, [0, 0, 0, 0, 0, 0, 9, 9, 9, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn pixels_outside_the_canvas_are_left_out() {
        let mut canvas = Canvas::new(20, 12);
        canvas.fill(15, 10, u32::MAX, u32::MAX, Colour(1));
        canvas.fill(100, 100, 5, 5, Colour(1));
        let filled: u32 = canvas.pixels.iter().copied().map(u32::from).sum();
        assert_eq!(filled, 10);
        canvas.text(18, 8, 100, "outside", Colour(1));
        canvas.text(u32::MAX, 0, 100, "outside", Colour(1));
    }

    #[test]
    fn texts_are_cut_to_their_width() {
        let drawn = |width: u32, text: &str| {
            let mut canvas = Canvas::new(60, LINE);
            canvas.text(0, 0, width, text, Colour(1));
            canvas.pixels
        };
        assert_eq!(drawn(13, "mmmm"), drawn(60, "mm"));
        assert_eq!(drawn(5, "m"), vec![0; 600]);
        assert_eq!(drawn(60, "日"), drawn(60, "?"));
        assert_ne!(drawn(60, "µ"), drawn(60, "?"));
    }
}
