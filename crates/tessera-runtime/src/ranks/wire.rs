//! What goes over TCP: a greeting when a connection begins, then frames.
//!
//! ```text
//! greeting  "TESSERA" version:u8  purpose:u8  rank:u32 ranks:u32  of:u64      answered by a frame: Welcome, or Refused with the reason
//! frame     kind:u8 name:u32 body:u64, then so many bytes of each             little-endian
//! ```
//! `of` says what the connection belongs to, so that ranks of two programs that meet by mistake refuse each other. Whoever does
//! not begin with a greeting is no rank: its connection is closed and nobody else hears of it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Raised when the bytes below change their meaning.
const VERSION: u8 = 1;
const MAGIC: &[u8; 7] = b"TESSERA";
/// The longest name of a frame.
const LONGEST_NAME: u32 = 1 << 16;
/// How long a new connection may take for its greeting.
const GREETING: Duration = Duration::from_secs(5);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Questions to the store.
    Store = 1,
    /// Signs of life.
    Life = 2,
    /// Tensors.
    Data = 3,
}

/// Who connects, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) purpose: Purpose,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) of: u64,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal)*) => {
        /// What a frame says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind { $($(#[$doc])* $kind = $code,)* }

        impl Kind {
            fn of(code: u8) -> Option<Kind> {
                match code { $($code => Some(Kind::$kind),)* _ => None }
            }
        }
    };
}

kinds! {
    /// The greeting is accepted.
    Welcome = 1
    /// It is not, or a question cannot be answered: the name says why.
    Refused = 2
    /// Keep the body under the name.
    Set = 3
    /// Answer with the body of the name once there is one; the body here is the time limit in milliseconds.
    Get = 4
    /// The answer.
    Value = 5
    /// It did not come in time.
    TimedOut = 6
    /// Forget all names that begin so.
    Forget = 7
    /// A sign of life: the name says what call is under way, the body its number.
    Alive = 8
    /// The answer: who is lost and who has left.
    Fates = 9
    /// The rank exchanges no more; the name says why, or nothing.
    Leave = 10
    /// Elements: the name is the signature of the call.
    Elements = 11
    /// Answer with what a rank was last seen doing.
    Progress = 12
}

#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) body: Vec<u8>,
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not from a rank of this program: {what}"))
}

impl Frame {
    pub(super) fn head(kind: Kind, name: &str, body: usize) -> Vec<u8> {
        let mut head = vec![kind as u8];
        head.extend((name.len() as u32).to_le_bytes());
        head.extend((body as u64).to_le_bytes());
        head.extend(name.as_bytes());
        head
    }

    pub(super) fn write(to: &mut impl Write, kind: Kind, name: &str, body: &[u8]) -> io::Result<()> {
        let mut bytes = Frame::head(kind, name, body.len());
        bytes.extend(body);
        to.write_all(&bytes)
    }

    /// Reads one; a body of more than `longest` bytes is refused.
    pub(super) fn read(from: &mut impl Read, longest: u64) -> io::Result<Frame> {
        let mut head = [0; 13];
        from.read_exact(&mut head)?;
        let [code, a, b, c, d, length @ ..] = head;
        let (name, body) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(length));
        let kind = Kind::of(code).ok_or_else(|| malformed("an unknown kind of message"))?;
        if name > LONGEST_NAME || body > longest {
            return Err(malformed("a message that is too long"));
        }
        let mut text = vec![0; name as usize];
        from.read_exact(&mut text)?;
        let name = String::from_utf8(text).map_err(|_| malformed("a name that is no text"))?;
        // Memory follows what arrives, not what is announced.
        let mut bytes = Vec::new();
        from.take(body).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != body {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Frame { kind, name, body: bytes })
    }
}

/// Why a greeting was not answered with a welcome.
#[derive(Debug)]
pub(super) enum Unwelcome {
    Io(io::Error),
    Refused(String),
}

impl From<io::Error> for Unwelcome {
    fn from(error: io::Error) -> Unwelcome {
        Unwelcome::Io(error)
    }
}

/// Greets whoever listens at the other end, and waits for the welcome.
pub(super) fn greet(stream: &mut TcpStream, greeting: Greeting) -> Result<(), Unwelcome> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING))?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend([VERSION, greeting.purpose as u8]);
    bytes.extend((greeting.rank as u32).to_le_bytes());
    bytes.extend((greeting.ranks as u32).to_le_bytes());
    bytes.extend(greeting.of.to_le_bytes());
    stream.write_all(&bytes)?;
    let answer = Frame::read(stream, 0)?;
    stream.set_read_timeout(None)?;
    match answer.kind {
        Kind::Welcome => Ok(()),
        _ => Err(Unwelcome::Refused(answer.name)),
    }
}

/// Reads a greeting and answers it. `judge` says why it is refused. `None` where it was, or was no greeting.
pub(super) fn welcome(stream: &mut TcpStream, judge: impl FnOnce(&Greeting) -> Result<(), String>) -> Option<Greeting> {
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(GREETING)).ok()?;
    let mut head = [0; 8];
    stream.read_exact(&mut head).ok()?;
    if head[..7] != *MAGIC {
        return None;
    }
    if head[7] != VERSION {
        let reason =
            format!("it speaks version {} of the protocol, and the other end {VERSION}: use one version of Tessera", head[7]);
        let _ = Frame::write(stream, Kind::Refused, &reason, &[]);
        return None;
    }
    let mut rest = [0; 17];
    stream.read_exact(&mut rest).ok()?;
    let word = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
    let purpose = match rest[0] {
        1 => Purpose::Store,
        2 => Purpose::Life,
        3 => Purpose::Data,
        _ => return None,
    };
    let of = u64::from(word(9)) | u64::from(word(13)) << 32;
    let greeting = Greeting { purpose, rank: word(1) as usize, ranks: word(5) as usize, of };
    if let Err(reason) = judge(&greeting) {
        let _ = Frame::write(stream, Kind::Refused, &reason, &[]);
        return None;
    }
    Frame::write(stream, Kind::Welcome, "", &[]).ok()?;
    stream.set_read_timeout(None).ok()?;
    Some(greeting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_what_is_none_is_refused() {
        let mut bytes = Vec::new();
        Frame::write(&mut bytes, Kind::Set, "name", &[1, 2, 3]).unwrap();
        let frame = Frame::read(&mut bytes.as_slice(), 3).unwrap();
        assert_eq!((frame.kind, frame.name.as_str(), frame.body.as_slice()), (Kind::Set, "name", &[1, 2, 3][..]));
        assert!(Frame::read(&mut bytes.as_slice(), 2).is_err(), "longer than allowed");
        assert!(Frame::read(&mut &bytes[..10], 3).is_err(), "cut off");
        assert!(Frame::read(&mut b"GET / HTTP/1.1\r\n\r\n".as_slice(), 1 << 40).is_err(), "somebody else's");
    }
}
