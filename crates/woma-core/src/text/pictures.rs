//! Shrinking of pictures for a reply. Their bytes come from a session: untrusted input.
//!
//! The functions compute for as long as a large picture takes: call them where blocking is allowed.

use std::io::Cursor;
use std::panic::catch_unwind;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as PngFilter, PngEncoder};
use image::imageops::FilterType;
use image::{DynamicImage, ImageError, ImageFormat, ImageReader, Limits, Rgb, RgbImage};

use super::grouped;

/// Models use no more pixels than this, and some refuse much larger pictures.
pub const PICTURE_SIDE_PX_MAX: u32 = 1_568;
/// Longest side of a picture that is decoded.
const DECODED_SIDE_PX_MAX: u32 = 20_000;
/// Memory limit of the decoder.
const DECODED_BYTES_MAX: u64 = 128 * 1024 * 1024;
const JPEG_QUALITY: u8 = 85;
/// Rounds of shrinking. Each aims below the bound; pictures with many details need several, and
/// each one leaves at most nine tenths of a side.
const ROUNDS_MAX: usize = 12;
/// Bytes of a PNG in which its list of transparent colours begins: it is before the pixels.
const PNG_TABLES_BYTES_MAX: usize = 8_192;

/// Limits of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub bytes_max: usize,
    pub side_px_max: u32,
}

/// Form in which a picture can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    AsIs,
    Smaller {
        media_type: &'static str,
        bytes: Vec<u8>,
        width: u32,
        height: u32,
    },
    /// Not shown; the reason is a sentence for the author of the picture.
    TooLarge {
        reason: String,
    },
}

/// Fits a picture into the bounds, unchanged or smaller. A transparent PNG is drawn on white, which
/// its author expects and a model may not. Media types other than PNG and JPEG are only checked for
/// their size in bytes.
pub fn fit(media_type: &str, bytes: &[u8], bounds: Bounds) -> Fit {
    let format = match media_type {
        "image/png" => ImageFormat::Png,
        "image/jpeg" | "image/jpg" => ImageFormat::Jpeg,
        _ if bytes.len() <= bounds.bytes_max => return Fit::AsIs,
        _ => return Fit::TooLarge { reason: too_many_bytes(bytes.len(), bounds) },
    };
    // Decoders should not panic; if one does, the picture is not shown.
    catch_unwind(|| fit_decoded(format, bytes, bounds))
        .unwrap_or_else(|_| Ok(unreadable(media_type, "its decoder failed")))
        .unwrap_or_else(|error| unreadable(media_type, &error.to_string()))
}

fn fit_decoded(format: ImageFormat, bytes: &[u8], bounds: Bounds) -> Result<Fit, ImageError> {
    let (width, height) = reader(format, bytes).into_dimensions()?;
    let side = width.max(height);
    let side_max = bounds.side_px_max.max(1);
    let is_within = bytes.len() <= bounds.bytes_max && side <= side_max;
    if is_within && !may_be_transparent(format, bytes) {
        return Ok(Fit::AsIs);
    }
    let image = reader(format, bytes).decode()?;
    let is_opaque = is_opaque(&image);
    if is_within && is_opaque {
        return Ok(Fit::AsIs);
    }
    let mut image = eight_bits(scaled(image, side_max));
    if !is_opaque {
        image = on_white(image);
    }
    if format == ImageFormat::Png {
        let encoded = png(&image)?;
        if encoded.len() <= bounds.bytes_max {
            return Ok(smaller("image/png", encoded, &image));
        }
    }
    image = on_white(image);
    for _ in 0..ROUNDS_MAX {
        let encoded = jpeg(&image)?;
        if encoded.len() <= bounds.bytes_max {
            return Ok(smaller("image/jpeg", encoded, &image));
        }
        let side = next_side(image.width().max(image.height()), encoded.len(), bounds.bytes_max);
        image = scaled(image, side);
    }
    Ok(Fit::TooLarge { reason: too_many_bytes(bytes.len(), bounds) })
}

fn reader(format: ImageFormat, bytes: &[u8]) -> ImageReader<Cursor<&[u8]>> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(DECODED_SIDE_PX_MAX);
    limits.max_image_height = Some(DECODED_SIDE_PX_MAX);
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    reader
}

/// Whether the file can have transparent pixels, by its header.
fn may_be_transparent(format: ImageFormat, bytes: &[u8]) -> bool {
    const COLOUR_TYPE_AT: usize = 25;
    let has_alpha = matches!(bytes.get(COLOUR_TYPE_AT), Some(4 | 6));
    let tables = bytes.get(..PNG_TABLES_BYTES_MAX).unwrap_or(bytes);
    format == ImageFormat::Png && (has_alpha || tables.windows(4).any(|name| name == b"tRNS"))
}

fn is_opaque(image: &DynamicImage) -> bool {
    match image {
        DynamicImage::ImageRgba8(image) => image.pixels().all(|pixel| pixel.0[3] == u8::MAX),
        image if image.color().has_alpha() => {
            image.to_rgba8().pixels().all(|pixel| pixel.0[3] == u8::MAX)
        }
        _ => true,
    }
}

fn scaled(image: DynamicImage, side_max: u32) -> DynamicImage {
    let side = image.width().max(image.height());
    if side <= side_max {
        image
    } else if side / 2 >= side_max {
        // Averages whole pixels: fast, without a floating-point copy, and as good from half size
        // on.
        image.thumbnail(side_max, side_max)
    } else {
        image.resize(side_max, side_max, FilterType::CatmullRom)
    }
}

/// Estimated side at which the picture takes slightly less than `bytes_max`.
fn next_side(side: u32, bytes: usize, bytes_max: usize) -> u32 {
    let area = u64::from(side) * u64::from(side);
    let area = area.saturating_mul(bytes_max as u64) / (bytes as u64).max(1);
    u32::try_from(area.isqrt() * 9 / 10).unwrap_or(side).clamp(1, side)
}

/// Reduces channels to eight bits; the difference is not visible.
fn eight_bits(image: DynamicImage) -> DynamicImage {
    match image {
        DynamicImage::ImageLuma16(_) => image.into_luma8().into(),
        DynamicImage::ImageLumaA16(_) => image.into_luma_alpha8().into(),
        DynamicImage::ImageRgb16(_) => image.into_rgb8().into(),
        DynamicImage::ImageRgba16(_) => image.into_rgba8().into(),
        other => other,
    }
}

/// Draws a picture on white, also because JPEG has no transparency.
fn on_white(image: DynamicImage) -> DynamicImage {
    if !image.color().has_alpha() {
        return image;
    }
    let image = image.into_rgba8();
    let mut flat = RgbImage::new(image.width(), image.height());
    for (flat, pixel) in flat.pixels_mut().zip(image.pixels()) {
        let [red, green, blue, alpha] = pixel.0;
        *flat = Rgb([red, green, blue].map(|channel| over_white(channel, alpha)));
    }
    flat.into()
}

fn over_white(channel: u8, alpha: u8) -> u8 {
    let (channel, alpha) = (u16::from(channel), u16::from(alpha));
    u8::try_from((channel * alpha + 255 * (255 - alpha)) / 255).unwrap_or(u8::MAX)
}

fn png(image: &DynamicImage) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    let (compression, filter) = (CompressionType::Default, PngFilter::Adaptive);
    image.write_with_encoder(PngEncoder::new_with_quality(&mut bytes, compression, filter))?;
    Ok(bytes)
}

fn jpeg(image: &DynamicImage) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    image.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY))?;
    Ok(bytes)
}

fn smaller(media_type: &'static str, bytes: Vec<u8>, image: &DynamicImage) -> Fit {
    Fit::Smaller { media_type, bytes, width: image.width(), height: image.height() }
}

fn too_many_bytes(bytes: usize, bounds: Bounds) -> String {
    let (bytes, most) = (grouped(bytes as u64), grouped(bounds.bytes_max as u64));
    format!("the picture has {bytes} bytes and no more than {most} can be shown: make it smaller")
}

fn unreadable(media_type: &str, why: &str) -> Fit {
    Fit::TooLarge { reason: format!("the picture cannot be opened as {media_type}: {why}") }
}

#[cfg(test)]
mod tests {
    use image::{DynamicImage, GenericImageView, Luma, Rgb, RgbImage, Rgba, RgbaImage};
    use proptest::prelude::*;

    use super::{Bounds, Fit, fit, jpeg, next_side, over_white, png};

    const USUAL: Bounds = Bounds { bytes_max: 620 * 1024, side_px_max: super::PICTURE_SIDE_PX_MAX };

    /// Random pixels, which do not compress.
    fn noise(width: u32, height: u32) -> DynamicImage {
        let mut state = 0x9e37_79b9_u32;
        let image = RgbImage::from_fn(width, height, |_, _| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            let [red, green, blue, _] = state.to_le_bytes();
            Rgb([red, green, blue])
        });
        image.into()
    }

    fn plain(width: u32, height: u32) -> DynamicImage {
        RgbaImage::from_pixel(width, height, Rgba([10, 200, 30, 255])).into()
    }

    fn bounds(bytes_max: usize, side_px_max: u32) -> Bounds {
        Bounds { bytes_max, side_px_max }
    }

    /// PNG with false dimensions and a valid checksum.
    fn claims(mut png: Vec<u8>, width: u32, height: u32) -> Vec<u8> {
        png[16..20].copy_from_slice(&width.to_be_bytes());
        png[20..24].copy_from_slice(&height.to_be_bytes());
        let checksum = !png[12..29].iter().fold(u32::MAX, |checksum, byte| {
            (0..8).fold(checksum ^ u32::from(*byte), |checksum, _| {
                if checksum & 1 == 1 { (checksum >> 1) ^ 0xedb8_8320 } else { checksum >> 1 }
            })
        });
        png[29..33].copy_from_slice(&checksum.to_be_bytes());
        png
    }

    fn reason(fit: Fit) -> String {
        match fit {
            Fit::TooLarge { reason } => reason,
            other => panic!("refused, not {other:?}"),
        }
    }

    #[test]
    fn pictures_within_the_bounds_are_unchanged() {
        let picture = noise(40, 30);
        let (as_png, as_jpeg) = (png(&picture).unwrap(), jpeg(&picture).unwrap());
        assert_eq!(fit("image/png", &as_png, USUAL), Fit::AsIs);
        assert_eq!(fit("image/png", &as_png, bounds(as_png.len(), 40)), Fit::AsIs);
        assert_eq!(fit("image/jpeg", &as_jpeg, bounds(as_jpeg.len(), 40)), Fit::AsIs);
        for media_type in ["image/gif", "image/webp", "image/svg+xml"] {
            assert_eq!(fit(media_type, b"12345", bounds(5, 1)), Fit::AsIs);
            assert!(reason(fit(media_type, b"123456", bounds(5, 1))).contains("6 bytes"));
        }
    }

    #[test]
    fn large_pictures_shrink_and_keep_their_shape() {
        for (width, height, side, expected) in [
            (300, 150, 100, (100, 50)),
            (150, 100, 120, (120, 80)),
            (10, 400, 100, (3, 100)),
            (3_000, 1, 100, (100, 1)),
        ] {
            let written = png(&plain(width, height)).unwrap();
            let Fit::Smaller { media_type, bytes, width, height } =
                fit("image/png", &written, bounds(10_000, side))
            else {
                panic!("smaller")
            };
            assert_eq!(((width, height), media_type), (expected, "image/png"));
            let shown = image::load_from_memory(&bytes).unwrap();
            assert_eq!(shown.dimensions(), expected);
            assert_eq!(shown.get_pixel(0, 0), Rgba([10, 200, 30, 255]), "colours stay");
        }
        let written = jpeg(&noise(200, 100)).unwrap();
        assert!(matches!(
            fit("image/jpeg", &written, bounds(100_000, 100)),
            Fit::Smaller { media_type: "image/jpeg", width: 100, height: 50, .. }
        ));
    }

    #[test]
    fn heavy_pictures_shrink_below_the_limit() {
        let written = png(&noise(400, 300)).unwrap();
        for bytes_max in [200_000, 60_000, 10_000] {
            let Fit::Smaller { media_type, bytes, width, height } =
                fit("image/png", &written, bounds(bytes_max, 400))
            else {
                panic!("smaller")
            };
            assert!(bytes.len() <= bytes_max && bytes.len() > bytes_max / 8, "{}", bytes.len());
            assert_eq!(media_type, "image/jpeg");
            assert_eq!(image::load_from_memory(&bytes).unwrap().dimensions(), (width, height));
        }
        assert!(reason(fit("image/png", &written, bounds(100, 400))).contains("no more than 100"));
        assert!(reason(fit("image/png", &written, bounds(0, 0))).contains("no more than 0"));
    }

    #[test]
    fn sixteen_bits_become_eight() {
        let image = image::ImageBuffer::from_pixel(64, 64, Luma([0x8000_u16]));
        let written = png(&DynamicImage::ImageLuma16(image)).unwrap();
        let Fit::Smaller { bytes, .. } = fit("image/png", &written, bounds(10_000, 32)) else {
            panic!("smaller")
        };
        assert!(matches!(image::load_from_memory(&bytes).unwrap(), DynamicImage::ImageLuma8(_)));
    }

    #[test]
    fn transparency_becomes_white() {
        assert_eq!([over_white(7, 255), over_white(7, 0), over_white(0, 128)], [7, 255, 127]);
        let mut image = noise(100, 100).into_rgba8();
        for pixel in image.pixels_mut() {
            pixel.0[3] = 0;
        }
        let written = png(&image.into()).unwrap();
        let Fit::Smaller { bytes, .. } = fit("image/png", &written, bounds(5_000, 100)) else {
            panic!("smaller")
        };
        let shown = image::load_from_memory(&bytes).unwrap().into_rgb8();
        assert!(shown.pixels().all(|pixel| pixel.0.iter().all(|channel| *channel > 250)));
    }

    #[test]
    fn transparent_pictures_are_drawn_on_white() {
        let clear = RgbaImage::from_fn(8, 8, |x, _| Rgba([0, 0, 0, if x < 4 { 0 } else { 255 }]));
        let written = png(&clear.into()).unwrap();
        let Fit::Smaller { media_type: "image/png", bytes, width: 8, height: 8 } =
            fit("image/png", &written, USUAL)
        else {
            panic!("a PNG of the same size")
        };
        let shown = image::load_from_memory(&bytes).unwrap();
        assert!(!shown.color().has_alpha());
        assert_eq!(shown.get_pixel(0, 0), Rgba([255, 255, 255, 255]));
        assert_eq!(shown.get_pixel(7, 0), Rgba([0, 0, 0, 255]), "what is opaque stays");
        assert_eq!(fit("image/png", &png(&plain(8, 8)).unwrap(), USUAL), Fit::AsIs);
    }

    #[test]
    fn some_picture_is_shown_of_any_figure() {
        let written = png(&noise(800, 450)).unwrap();
        for bytes_max in [620 * 1024, 31 * 1024, 2_000] {
            let bounds = bounds(bytes_max, super::PICTURE_SIDE_PX_MAX);
            let Fit::Smaller { bytes, width, .. } = fit("image/png", &written, bounds) else {
                panic!("smaller: {bytes_max}")
            };
            assert!(bytes.len() <= bytes_max && width >= 32, "{width}: {}", bytes.len());
        }
    }

    #[test]
    fn bombs_are_not_opened() {
        let small = png(&plain(8, 8)).unwrap();
        for (width, height) in [(20_001, 1), (12_000, 12_000), (20_000, 20_000), (u32::MAX, 1)] {
            let reason =
                reason(fit("image/png", &claims(small.clone(), width, height), bounds(9_000, 100)));
            assert!(
                reason.to_lowercase().contains("limit") || reason.contains("large"),
                "{reason}"
            );
        }
        let mut large = jpeg(&plain(8, 8).into_rgb8().into()).unwrap();
        let frame = large.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
        for side in [20_001_u16, 15_000] {
            large[frame + 5..frame + 7].copy_from_slice(&side.to_be_bytes());
            large[frame + 7..frame + 9].copy_from_slice(&side.to_be_bytes());
            let reason = reason(fit("image/jpeg", &large, USUAL));
            assert!(reason.to_lowercase().contains("limit"), "{reason}");
        }
        assert!(reason(fit("image/png", b"", USUAL)).contains("image/png"));
        assert!(reason(fit("image/jpeg", &small, USUAL)).contains("image/jpeg"));
        assert!(reason(fit("image/png", &claims(small, 0, 8), USUAL)).contains("image/png"));
    }

    #[test]
    fn the_next_side_is_smaller_and_positive() {
        for (side, bytes, bytes_max, expected) in
            [(1_000, 400, 100, 450), (1_000, 100, 100, 900), (5, usize::MAX, 1, 1), (1, 2, 1, 1)]
        {
            assert_eq!(next_side(side, bytes, bytes_max), expected);
        }
    }

    fn changed(original: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
        let length = original.len();
        let changes = prop::collection::vec((0..length, any::<u8>()), 0..6);
        (changes, prop_oneof![3 => Just(length), 1 => 0..length]).prop_map(
            move |(changes, kept)| {
                let mut bytes = original.clone();
                for (at, byte) in changes {
                    bytes[at] = byte;
                }
                bytes.truncate(kept);
                bytes
            },
        )
    }

    fn pictures() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
        let picture = noise(24, 16);
        let (as_png, as_jpeg) = (png(&picture).unwrap(), jpeg(&picture).unwrap());
        let claiming = as_png.clone();
        prop_oneof![
            changed(as_png).prop_map(|bytes| ("image/png", bytes)),
            (1_u32..100, 1_u32..100).prop_map(move |(width, height)| (
                "image/png",
                claims(claiming.clone(), width, height)
            )),
            changed(as_jpeg).prop_map(|bytes| ("image/jpeg", bytes)),
            any::<Vec<u8>>().prop_map(|bytes| ("image/png", bytes)),
            any::<Vec<u8>>().prop_map(|bytes| ("image/jpeg", bytes)),
        ]
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_picture_within_the_bounds_or_none(
            (media_type, bytes) in pictures(),
            bytes_max in 0_usize..2_000,
            side_px_max in 0_u32..30,
        ) {
            match fit(media_type, &bytes, bounds(bytes_max, side_px_max)) {
                Fit::AsIs => prop_assert!(bytes.len() <= bytes_max),
                Fit::Smaller { bytes, width, height, .. } => {
                    prop_assert!(bytes.len() <= bytes_max);
                    prop_assert!(width.max(height) <= side_px_max.max(1));
                    prop_assert!(image::load_from_memory(&bytes).is_ok());
                }
                Fit::TooLarge { reason } => prop_assert!(!reason.is_empty()),
            }
        }
    }
}
