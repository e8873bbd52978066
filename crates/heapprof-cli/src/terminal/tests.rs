//! Drawings as text.
