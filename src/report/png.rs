//! A PNG writer for 8-bit RGB images (ISO/IEC 15948), so that no image library is needed.

use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// An image of `width` pixels a row, three bytes a pixel.
///
/// # Errors
/// If compression fails; writing to memory does not.
pub(crate) fn encode(pixels: &[u8], width: u32, height: u32) -> std::io::Result<Vec<u8>> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::with_capacity(13);
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    // 8 bits a channel, RGB, deflate, adaptive filters, not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    chunk(&mut out, *b"IHDR", &header);
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::new(8));
    for row in pixels.chunks_exact(width as usize * 3) {
        // Filter 0: flat areas compress well as they are.
        zlib.write_all(&[0])?;
        zlib.write_all(row)?;
    }
    chunk(&mut out, *b"IDAT", &zlib.finish()?);
    chunk(&mut out, *b"IEND", &[]);
    Ok(out)
}

fn chunk(out: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    out.extend((data.len() as u32).to_be_bytes());
    let mut crc = Crc::new();
    crc.update(&kind);
    crc.update(data);
    out.extend(kind);
    out.extend(data);
    out.extend(crc.sum().to_be_bytes());
}

/// Halves both sides of an image by averaging squares of four pixels.
pub(crate) fn halved(pixels: &[u8], width: usize, height: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(pixels.len() / 4);
    for y in 0..height / 2 {
        for x in 0..width / 2 {
            for channel in 0..3 {
                let at =
                    |dx, dy| u16::from(pixels[((2 * y + dy) * width + 2 * x + dx) * 3 + channel]);
                out.push(((at(0, 0) + at(1, 0) + at(0, 1) + at(1, 1) + 2) / 4) as u8);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_written_image_reads_back() {
        let pixels: Vec<u8> = (0..3 * 4 * 2).collect();
        let png = encode(&pixels, 4, 2).unwrap();
        // CRC of an empty IEND chunk, from the standard.
        assert!(png.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
        let length = u32::from_be_bytes(png[33..37].try_into().unwrap()) as usize;
        let mut raw = Vec::new();
        flate2::read::ZlibDecoder::new(&png[41..41 + length])
            .read_to_end(&mut raw)
            .unwrap();
        let rows: Vec<u8> = raw.chunks(13).flat_map(|row| row[1..].to_vec()).collect();
        assert_eq!(rows, pixels);
    }

    #[test]
    fn halving_averages() {
        let pixels = [0, 0, 0, 100, 40, 8, 0, 0, 0, 100, 40, 8];
        assert_eq!(halved(&pixels, 2, 2), [50, 20, 4]);
    }
}
