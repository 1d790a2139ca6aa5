//! A text-safe wrapping of frames (being written).
