//! The wiretap: datagrams by which a program reports which parts of its code ran.
//!
//! A program sends a datagram by UDP for each call of `alive`, without waiting. The listener counts
//! datagrams by code, and detects lost datagrams by their numbers. [`DatagramSender`] is for the
//! program; [`decode()`] and [`LossTracker`] are for the listener. The crate must not depend on a
//! database, a terminal or a command line, because it is a part of every profiled program.
#![deny(unsafe_code)]

mod datagram;
mod decode;
mod encode;
#[allow(unsafe_code)]
mod kernel;
mod key;
mod losses;
mod route;
mod sender;

pub use crate::{
    datagram::{MAX_DATAGRAM_BYTES, ModuleOutcome, WiretapDatagram, WiretapEvent},
    decode::{DatagramError, decode},
    kernel::keeping_errno,
    key::{KeyError, SigningKey},
    losses::{DatagramReceipt, LossSums, LossTracker, MAX_SENDERS, SenderLosses, SenderState},
    route::{RouteError, WiretapRoute},
    sender::DatagramSender,
};
