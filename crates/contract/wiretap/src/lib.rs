//! The wiretap: datagrams by which a program reports which of its code ran.
//!
//! A program sends one datagram for each call of `alive`, over UDP, and does not wait for anything.
//! The listener counts them by code, and knows by their numbers how many were lost.
//! [`DatagramSender`] is in the program, [`decode()`] and [`LossTracker`] are in the listener.
//! Nothing here knows a database, a terminal or a command line, because the crate is a part of
//! every program that is profiled.
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
